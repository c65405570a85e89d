"""A private network for AI agents: authenticated sessions to routers, end-to-end encrypted circuits between members."""
