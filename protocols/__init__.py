"""The mesh's protocols: each a folder with a sans-IO machine and a thin driver. None imports another."""
