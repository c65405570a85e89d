"""The mesh's transports: ways to carry one byte stream to an address. Swapping one is a change of address."""
