"""What goes over the wire: protobuf messages and their framing.

`proto/` holds the definitions, `messages/` what `python -m agentmesh.wire.generate` makes of them, `codec` reads a
message from bytes that a peer sent, `framing` cuts a byte stream into messages.
"""
