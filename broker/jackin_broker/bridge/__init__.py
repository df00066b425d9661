"""The bridge: the same sessions where a Unix socket cannot cross, over HTTP and as frames on TCP.

Importing this package imports nothing else: uvicorn is loaded only where a bridge is open.
"""
