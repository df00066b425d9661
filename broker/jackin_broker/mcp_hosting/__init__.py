"""MCP servers for the agents: each a confined process whose requests are the agent's own."""
