"""Admission on the word of an identity provider (OpenID Connect), about a person or about a program.

trust     which providers are believed, and of what audience their tokens are
keys      a provider's public keys, out of its JWKS
tokens    what a token says, once it is verified; pure
provider  one provider over HTTP: discovery, its keys, how often they are asked for
verifier  the providers together
"""
