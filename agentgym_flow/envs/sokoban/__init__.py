"""Sokoban: push every box onto a target. Levels, generator, solver, and the environments that play them."""
