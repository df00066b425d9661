"""The MCP server on the official SDK. Not part of this version: nothing here is served yet."""
