"""Words too common to be taken out of an output, whatever they are the value of. Pure.

Only those of eight bytes or more: shorter values are refused anyway.
"""

from __future__ import annotations

from typing import Final

_WORDS: Final = frozenset(
    b"""
    password passw0rd password1 password12 password123 password1234 passphrase credential
    credentials changeme changeit changethis letmein1 welcome1 qwertyuiop administrator username
    anonymous superuser postgres postgresql mariadb-server rabbitmq elasticsearch mongodb-server
    localhost localhost:8080 localhost:3000 localhost:5432 127.0.0.1 host.docker.internal
    production development staging-env testing-env container kubernetes database default-user
    undefined disabled required optional internal external readonly readwrite read-only
    read-write unlimited automatic directory filename document documents download downloads
    function constant property variable exception traceback warnings developer
    application configuration environment repository service-account service_account
    authorized_user external_account master-key secretkey secret-key accesskey access-key
    access_key secret_key placeholder example1 examplekey your-api-key your_api_key
    your-token-here insert-token-here replace-me replaceme not-set-yet dummyvalue testvalue
    test1234 testtest1
    12345678 123456789 1234567890 87654321 abcdefgh abcd1234 abcdefghij qwerty123 qwerty1234
    iloveyou sunshine princess football baseball trustno1 superman starwars whatever
    us-east-1 us-east-2 us-west-1 us-west-2 eu-west-1 eu-west-2 eu-central-1 ap-southeast-1
    europe-west1 us-central1 https://oauth2.googleapis.com/token
    https://accounts.google.com/o/oauth2/auth https://www.googleapis.com/oauth2/v1/certs
    googleapis.com application/json text/plain utf-8-sig undefined-value
    """.split()
)


def is_common(text: bytes) -> bool:
    """True for a word that ordinary output holds, in any case."""
    return text.lower() in _WORDS
