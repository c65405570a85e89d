"""Floodsub, `/floodsub/1.0.0`: who subscribes to a topic hears all that is published on it."""
