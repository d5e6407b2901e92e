"""TLS: certificates in files, and who trusts whom with them.

| module | content |
|---|---|
| `contexts` | TLS 1.2 or later from PEM files, loaded again when they change |
| `certificates` | what certificates say, and why one was refused |
| `authority` | a certificate authority for small fogs (`speck ca`) |
| `identity` | what a fog's brokers, engines and agents are given |
| `legs` | the ways between the service and a site: which are plain, whose certificates end soon |

The agent of a site imports `contexts`, and has nothing but the standard library: `contexts` and
this file import no package. May import `speck.model` and `speck.errors`. Begin with `contexts`.
"""
