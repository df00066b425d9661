"""The operator's screens: requests in, decisions out. No value ever enters this process."""
