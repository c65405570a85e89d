// A peer that nobody here wrote: a js-libp2p host, told what to do by JSON lines, as py_libp2p_peer.py says.
//
//   node js_libp2p_peer.mjs --listen MULTIADDR … [--security tls|noise …] [--relay]
//
// It speaks TLS, unless `--security` names others in the order of its liking, and yamux, over TCP and WebSocket. `--relay`
// makes it a circuit relay, without limits.

import { createHash, randomBytes } from 'node:crypto'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { circuitRelayServer, circuitRelayTransport } from '@libp2p/circuit-relay-v2'
import { publicKeyToProtobuf } from '@libp2p/crypto/keys'
import { floodsub } from '@libp2p/floodsub'
import { identify } from '@libp2p/identify'
import { noise } from '@libp2p/noise'
import { peerIdFromString } from '@libp2p/peer-id'
import { ping } from '@libp2p/ping'
import { tcp } from '@libp2p/tcp'
import { tls } from '@libp2p/tls'
import { webSockets } from '@libp2p/websockets'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

const ECHO = '/test/echo/1.0.0'
const COUNT = '/test/count/1.0.0'
const CHUNK = 64 * 1024
const COMMAND_TIMEOUT = 60_000 // milliseconds
const MANY = 1024
const STREAMS = { maxInboundStreams: MANY, maxOutboundStreams: MANY, runOnLimitedConnection: true }

const { values: options } = parseArgs({
  options: {
    listen: { type: 'string', multiple: true, default: [] },
    security: { type: 'string', multiple: true, default: ['tls'] },
    relay: { type: 'boolean', default: false }
  }
})

const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n')
const describe = (error) => `${error.name}: ${error.message}` + (error.errors ?? []).map((each) => `; ${describe(each)}`).join('')

/** Send, and wait while the stream is full. Its own onDrain() waits the first time only (libp2p 3.3). */
async function send (stream, data) {
  if (stream.send(data)) return
  await new Promise((resolve, reject) => {
    stream.addEventListener('drain', resolve, { once: true })
    stream.addEventListener('close', () => reject(new Error('closed while sending')), { once: true })
  })
}

/** What comes, to its end. Its own iterator never ends when the end had come before it was asked (@libp2p/utils 7). */
async function * read (stream) {
  const received = []
  let ended = stream.readableEnded
  let failure = null
  let wake = () => {}
  stream.addEventListener('message', ({ data }) => { received.push(data.subarray()); wake() })
  stream.addEventListener('end', () => { ended = true; wake() })
  stream.addEventListener('close', ({ error }) => { ended = true; failure = error ?? null; wake() })
  for (;;) {
    while (received.length > 0) yield received.shift()
    if (failure) throw failure
    if (ended) return
    await new Promise((resolve) => { wake = resolve })
  }
}

async function serveEcho (stream) {
  for await (const data of read(stream)) await send(stream, data)
  await stream.close()
}

/** Nothing is said before the other's end has come. */
async function serveCount (stream) {
  let count = 0
  for await (const data of read(stream)) count += data.byteLength
  await send(stream, new TextEncoder().encode(String(count)))
  await stream.close()
}

const node = await createLibp2p({
  addresses: { listen: options.listen },
  connectionGater: { denyDialMultiaddr: () => false },
  connectionMonitor: { enabled: false }, // its pings would come between the tests'
  connectionEncrypters: options.security.map((name) => ({ tls, noise })[name]()),
  streamMuxers: [yamux({ streamOptions: { maxStreamWindowSize: 1024 * 1024 } })], // its read buffer ends it at 4 MiB
  transports: [tcp(), webSockets(), circuitRelayTransport()],
  services: {
    identify: identify(),
    ping: ping(),
    ...(options.relay ? { relay: circuitRelayServer({ reservations: { applyDefaultLimit: false } }) } : {})
  }
})
await node.handle(ECHO, serveEcho, STREAMS)
await node.handle(COUNT, serveCount, STREAMS)

let pubsub = null
const messages = []

function connectionTo (peer) {
  const found = node.getConnections(peerIdFromString(peer))
  if (found.length === 0) throw new Error(`no connection to ${peer}`)
  return found[0]
}

const open = (peer, protocol) => connectionTo(peer).newStream(protocol, STREAMS)

async function echo (peer, size) {
  const stream = await open(peer, ECHO)
  const sent = createHash('sha256')
  const received = createHash('sha256')
  let count = 0
  const sending = (async () => {
    for (let left = size; left > 0; left -= CHUNK) {
      const data = randomBytes(Math.min(CHUNK, left))
      sent.update(data)
      await send(stream, data)
    }
    await stream.close()
  })()
  for await (const data of read(stream)) {
    received.update(data)
    count += data.byteLength
  }
  await sending
  return { sent: sent.digest('hex'), received: received.digest('hex'), size: count }
}

const COMMANDS = {
  async connect ({ address }) {
    const connection = await node.dial(multiaddr(address))
    return { peer: connection.remotePeer.toString() }
  },
  async identify ({ peer }) {
    const connection = connectionTo(peer)
    const found = await node.services.identify.identify(connection) // refuses another key than the connection's
    return {
      agent: found.agentVersion,
      protocol_version: found.protocolVersion,
      public_key: Buffer.from(publicKeyToProtobuf(connection.remotePeer.publicKey)).toString('hex'),
      protocols: found.protocols,
      listen: found.listenAddrs.map(String),
      observed: found.observedAddr?.toString() ?? null,
      signed_record: found.signedPeerRecord != null
    }
  },
  async ping ({ peer, count = 1 }) {
    const times = []
    for (let i = 0; i < count; i++) times.push(await node.services.ping.ping(peerIdFromString(peer)))
    return { milliseconds: times }
  },
  async echo ({ peer, size }) {
    return await echo(peer, size)
  },
  async many ({ peer, size, streams }) {
    const found = await Promise.all(Array.from({ length: streams }, () => echo(peer, size)))
    return { intact: found.filter((each) => each.sent === each.received && each.size === size).length }
  },
  async count ({ peer, size }) {
    const stream = await open(peer, COUNT)
    await send(stream, new Uint8Array(size))
    await stream.close()
    const answer = []
    for await (const data of read(stream)) answer.push(data)
    return { count: Number(Buffer.concat(answer).toString()) }
  },
  async reset ({ peer, protocol }) {
    const stream = await open(peer, protocol)
    await send(stream, new Uint8Array(1))
    await new Promise((resolve) => stream.addEventListener('message', resolve, { once: true }))
    stream.abort(new Error('told to'))
    return {}
  },
  async reserve ({ relay }) {
    const connection = connectionTo(relay)
    const circuits = node.components.transportManager.getTransports().find((each) => each.reservationStore)
    try {
      await node.components.transportManager.listen([connection.remoteAddr.encapsulate('/p2p-circuit')])
    } catch (error) {
      return { granted: false, error: describe(error) }
    }
    const held = circuits.reservationStore.getReservation(connection.remotePeer)
    return { granted: held != null, expires: Number(held?.expire ?? 0) }
  },
  async relay_connect ({ address }) {
    await node.dial(multiaddr(address))
    return {}
  },
  async refused ({ peer, protocol }) {
    try {
      const stream = await open(peer, protocol)
      const next = read(stream).next()
      await send(stream, new Uint8Array(1))
      const { value, done } = await next
      return { refused: done ? 'the end of the stream' : null, read: value ? Buffer.from(value).toString('hex') : '' }
    } catch (error) {
      return { refused: describe(error) }
    }
  },
  async connections () {
    return { peers: node.getPeers().map(String).sort() }
  },
  async wait_connected ({ peer, connected = true }) {
    for (let i = 0; i < 1000; i++) {
      if ((node.getConnections(peerIdFromString(peer)).length > 0) === connected) return {}
      await sleep(10)
    }
    throw new Error(`${connected ? 'no' : 'still a'} connection to ${peer}`)
  },
  async exchange ({ peer, protocol, sent }) {
    const stream = await open(peer, protocol)
    await send(stream, Buffer.from(sent, 'hex'))
    const received = []
    for await (const data of read(stream)) received.push(data)
    return { received: Buffer.concat(received).toString('hex') }
  },
  // Not before: what the host says to a peer that has not admitted it yet is said once, and to nobody.
  async floodsub ({ peer, topic }) {
    pubsub = floodsub()(node.components)
    pubsub.addEventListener('message', ({ detail: { from, topic, data } }) => {
      messages.push({ topic, author: from.toString(), text: new TextDecoder().decode(data) })
    })
    await pubsub.start()
    await pubsub._onPeerConnected(peerIdFromString(peer), connectionTo(peer))
    pubsub.subscribe(topic)
    while (!pubsub.getSubscribers(topic).some((one) => one.toString() === peer)) await sleep(10)
    return {}
  },
  async publish ({ topic, text }) {
    await pubsub.publish(topic, new TextEncoder().encode(text))
    return {}
  },
  async heard ({ topic, count }) {
    const heard = () => messages.filter((one) => one.topic === topic)
    while (heard().length < count) await sleep(10)
    return { messages: heard().map(({ author, text }) => ({ author, text })) }
  },
  async disconnect ({ peer }) {
    await node.hangUp(peerIdFromString(peer))
    return {}
  }
}

async function answer ({ id, do: command, ...args }) {
  const late = sleep(COMMAND_TIMEOUT, null, { ref: false }).then(() => { throw new Error(`${command} took too long`) })
  try {
    say({ id, ok: true, ...await Promise.race([COMMANDS[command](args), late]) })
  } catch (error) {
    console.error(error)
    say({ id, ok: false, error: describe(error) })
  }
}

process.on('unhandledRejection', (error) => console.error('unhandled:', error))
const lines = createInterface({ input: process.stdin })
lines.on('line', (line) => answer(JSON.parse(line)))
lines.on('close', () => process.exit(0))
say({ ready: true, peer: node.peerId.toString(), addresses: node.getMultiaddrs().map(String) })
