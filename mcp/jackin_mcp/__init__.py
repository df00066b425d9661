"""The MCP server of an agent's session: a thin one, on the official SDK (DESIGN §12)."""
