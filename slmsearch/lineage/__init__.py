"""Lineage of results: walks from stored artifacts back to their inputs and forth to the artifacts made from them."""
