// A peer that nobody here wrote: a go-libp2p host, told what to do by JSON lines, as py_libp2p_peer.py says.
//
//	go_libp2p_peer --listen MULTIADDR … [--relay]
//
// It speaks TLS and yamux, over TCP and WebSocket. --relay makes it a circuit relay, without limits.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	"github.com/libp2p/go-libp2p/p2p/protocol/identify"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/p2p/transport/websocket"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	echoID         = protocol.ID("/test/echo/1.0.0")
	countID        = protocol.ID("/test/count/1.0.0")
	chunk          = 64 * 1024
	commandTimeout = 60 * time.Second
)

type answer = map[string]any

// command is what may come on a line; each command reads the fields that it needs.
type command struct {
	ID        int     `json:"id"`
	Do        string  `json:"do"`
	Address   string  `json:"address"`
	Peer      peer.ID `json:"peer"`
	Relay     peer.ID `json:"relay"`
	Protocol  string  `json:"protocol"`
	Size      int     `json:"size"`
	Count     int     `json:"count"`
	Streams   int     `json:"streams"`
	Connected *bool   `json:"connected"`
}

type addresses []string

func (a *addresses) String() string { return fmt.Sprint(*a) }

func (a *addresses) Set(value string) error {
	*a = append(*a, value)
	return nil
}

var (
	node     host.Host
	speaking sync.Mutex
)

func say(told answer) {
	line, err := json.Marshal(told)
	if err != nil {
		log.Fatal(err)
	}
	speaking.Lock()
	defer speaking.Unlock()
	fmt.Println(string(line))
}

func serveEcho(stream network.Stream) {
	if _, err := io.Copy(stream, stream); err != nil {
		stream.Reset()
		return
	}
	stream.Close()
}

// serveCount says nothing before the other's end has come.
func serveCount(stream network.Stream) {
	count, err := io.Copy(io.Discard, stream)
	if err != nil {
		stream.Reset()
		return
	}
	fmt.Fprint(stream, count)
	stream.Close()
}

func open(ctx context.Context, to peer.ID, id protocol.ID) (network.Stream, error) {
	return node.NewStream(network.WithAllowLimitedConn(ctx, "a test"), to, id)
}

func connect(ctx context.Context, address string) (answer, error) {
	info, err := peer.AddrInfoFromString(address)
	if err != nil {
		return nil, err
	}
	return answer{"peer": info.ID}, node.Connect(ctx, *info)
}

func identified(ctx context.Context, to peer.ID) (answer, error) {
	connections := node.Network().ConnsToPeer(to)
	if len(connections) == 0 {
		return nil, fmt.Errorf("no connection to %s", to)
	}
	type identifier interface{ IDService() identify.IDService }
	select {
	case <-node.(identifier).IDService().IdentifyWait(connections[0]):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	store := node.Peerstore()
	agent, _ := store.Get(to, "AgentVersion")
	version, _ := store.Get(to, "ProtocolVersion")
	protocols, err := store.GetProtocols(to)
	if err != nil {
		return nil, err
	}
	key, err := store.PubKey(to).Raw()
	if err != nil {
		return nil, err
	}
	listen := []string{}
	for _, address := range store.Addrs(to) {
		listen = append(listen, address.String())
	}
	return answer{
		"agent": agent, "protocol_version": version, "protocols": protocols, "listen": listen,
		"public_key": "08011220" + hex.EncodeToString(key),
	}, nil
}

func pinged(ctx context.Context, to peer.ID, count int) (answer, error) {
	ctx, cancel := context.WithCancel(network.WithAllowLimitedConn(ctx, "a test"))
	defer cancel()
	results, times := ping.Ping(ctx, node, to), []float64{}
	for range max(count, 1) {
		result := <-results
		if result.Error != nil {
			return nil, result.Error
		}
		times = append(times, result.RTT.Seconds()*1000)
	}
	return answer{"milliseconds": times}, nil
}

func echo(ctx context.Context, to peer.ID, size int) (answer, error) {
	stream, err := open(ctx, to, echoID)
	if err != nil {
		return nil, err
	}
	defer stream.Reset()
	sent, received, failed := sha256.New(), sha256.New(), make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(stream, sent)}, io.LimitReader(rand.Reader, int64(size)), make([]byte, chunk))
		if err == nil {
			err = stream.CloseWrite()
		}
		failed <- err
	}()
	count, err := io.Copy(received, stream)
	if err != nil {
		return nil, err
	}
	return answer{"sent": hex.EncodeToString(sent.Sum(nil)), "received": hex.EncodeToString(received.Sum(nil)), "size": count}, <-failed
}

func many(ctx context.Context, to peer.ID, size, streams int) (answer, error) {
	results := make(chan bool)
	for range streams {
		go func() {
			found, err := echo(ctx, to, size)
			results <- err == nil && found["sent"] == found["received"] && found["size"] == int64(size)
		}()
	}
	intact := 0
	for range streams {
		if <-results {
			intact++
		}
	}
	return answer{"intact": intact}, nil
}

func counted(ctx context.Context, to peer.ID, size int) (answer, error) {
	stream, err := open(ctx, to, countID)
	if err != nil {
		return nil, err
	}
	defer stream.Reset()
	if _, err := stream.Write(make([]byte, size)); err != nil {
		return nil, err
	}
	if err := stream.CloseWrite(); err != nil {
		return nil, err
	}
	said, err := io.ReadAll(stream)
	if err != nil {
		return nil, err
	}
	count, err := strconv.Atoi(string(said))
	return answer{"count": count}, err
}

func reset(ctx context.Context, to peer.ID, id protocol.ID) (answer, error) {
	stream, err := open(ctx, to, id)
	if err != nil {
		return nil, err
	}
	defer stream.Reset()
	if _, err := stream.Write([]byte("x")); err != nil {
		return nil, err
	}
	_, err = stream.Read(make([]byte, 1))
	return answer{}, err
}

func reserve(ctx context.Context, at peer.ID) (answer, error) {
	held, err := client.Reserve(ctx, node, peer.AddrInfo{ID: at})
	if err != nil {
		return answer{"granted": false, "error": err.Error()}, nil
	}
	return answer{"granted": true, "expires": held.Expiration.Unix()}, nil
}

func refused(ctx context.Context, to peer.ID, id protocol.ID) (answer, error) {
	stream, err := open(ctx, to, id)
	if err != nil {
		return answer{"refused": err.Error()}, nil
	}
	defer stream.Reset()
	if _, err := stream.Write([]byte("x")); err != nil {
		return answer{"refused": err.Error()}, nil
	}
	read := make([]byte, 1)
	if _, err := stream.Read(read); err != nil {
		return answer{"refused": err.Error()}, nil
	}
	return answer{"refused": nil, "read": hex.EncodeToString(read)}, nil
}

func waitConnected(ctx context.Context, to peer.ID, connected bool) (answer, error) {
	for (len(node.Network().ConnsToPeer(to)) > 0) != connected {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return answer{}, nil
}

func do(ctx context.Context, told command) (answer, error) {
	switch told.Do {
	case "connect", "relay_connect":
		return connect(ctx, told.Address)
	case "identify":
		return identified(ctx, told.Peer)
	case "ping":
		return pinged(ctx, told.Peer, told.Count)
	case "echo":
		return echo(ctx, told.Peer, told.Size)
	case "many":
		return many(ctx, told.Peer, told.Size, told.Streams)
	case "count":
		return counted(ctx, told.Peer, told.Size)
	case "reset":
		return reset(ctx, told.Peer, protocol.ID(told.Protocol))
	case "reserve":
		return reserve(ctx, told.Relay)
	case "refused":
		return refused(ctx, told.Peer, protocol.ID(told.Protocol))
	case "connections":
		return answer{"peers": node.Network().Peers()}, nil
	case "wait_connected":
		return waitConnected(ctx, told.Peer, told.Connected == nil || *told.Connected)
	case "disconnect":
		return answer{}, node.Network().ClosePeer(told.Peer)
	}
	return nil, fmt.Errorf("no command %q", told.Do)
}

func obey(told command) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	found, err := do(ctx, told)
	if err != nil {
		log.Printf("%s: %v", told.Do, err)
		say(answer{"id": told.ID, "ok": false, "error": err.Error()})
		return
	}
	found["id"], found["ok"] = told.ID, true
	say(found)
}

func start(listen []string, asRelay bool) (host.Host, error) {
	muxer := *yamux.DefaultTransport
	options := []libp2p.Option{
		libp2p.ListenAddrStrings(listen...),
		libp2p.Security(libp2ptls.ID, libp2ptls.New),
		libp2p.Muxer(yamux.ID, &muxer),
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Transport(websocket.New),
		libp2p.EnableRelay(),
		libp2p.UserAgent("go-libp2p/0.52.0"),
		libp2p.ResourceManager(&network.NullResourceManager{}),
	}
	if asRelay {
		options = append(options, libp2p.EnableRelayService(relay.WithInfiniteLimits()), libp2p.ForceReachabilityPublic())
	}
	return libp2p.New(options...)
}

func main() {
	var listen addresses
	flag.Var(&listen, "listen", "a multiaddr to listen on; may be given again")
	asRelay := flag.Bool("relay", false, "serve as a circuit relay")
	flag.Parse()
	var err error
	if node, err = start(listen, *asRelay); err != nil {
		log.Fatal(err)
	}
	node.SetStreamHandler(echoID, serveEcho)
	node.SetStreamHandler(countID, serveCount)
	found := []string{}
	for _, address := range node.Network().ListenAddresses() {
		if _, err := address.ValueForProtocol(ma.P_CIRCUIT); err != nil {
			found = append(found, fmt.Sprintf("%s/p2p/%s", address, node.ID()))
		}
	}
	say(answer{"ready": true, "peer": node.ID(), "addresses": found})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var told command
		if err := json.Unmarshal(lines.Bytes(), &told); err != nil {
			log.Fatal(err)
		}
		go obey(told)
	}
}
