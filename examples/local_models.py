"""Ask a model of the mesh with OpenAI's client, through the local API of a node. Knows nothing of agentmesh.

agentmesh node --bootstrap-token-path mesh/join-token --socket-path node.sock
python examples/local_models.py node.sock small "What is a mesh?"             # a model's name, and what to ask it
"""

import sys

import httpx2
import openai
import trio


async def main(socket_path: str, model: str, question: str) -> None:
    transport = httpx2.AsyncHTTPTransport(uds=socket_path)
    async with httpx2.AsyncClient(transport=transport, timeout=300) as http:
        client = openai.AsyncOpenAI(base_url="http://node/v1", api_key="unused", http_client=http)
        stream = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": question}], stream=True
        )
        async for chunk in stream:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        print()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
