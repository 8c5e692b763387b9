"""Workflow graphs: their nodes, the places of nodes in a graph, edits that apply whole or not at all, statistics."""
