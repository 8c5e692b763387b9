"""The people of the stories: no name is in two splits."""

from __future__ import annotations

from collections.abc import Mapping

PEOPLE: Mapping[str, tuple[str, ...]] = {
    "train": (
        "Aylin", "Bruno", "Carmen", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Imani", "Jonas", "Katya", "Leon",
        "Mei", "Nadia", "Otto", "Paloma", "Quinn", "Rosa", "Samir", "Tessa", "Umar", "Vera", "Wanda", "Xavi", "Yusuf",
        "Zelda", "Anton", "Bianca", "Cedric", "Dalia", "Emil", "Fiona", "Gustav", "Hanna", "Ivo", "Jasmin", "Kofi",
        "Lena", "Marek", "Nora",
    ),
    "valid": (
        "Alba", "Boris", "Clara", "Davit", "Esther", "Florin", "Gemma", "Henrik", "Ines", "Jorge", "Kira", "Ludwig",
        "Mona", "Nils", "Olga", "Pavel", "Rania", "Stefan", "Thea", "Ursula", "Viktor", "Willa", "Yara", "Zoran",
        "Amara", "Bashir", "Celia", "Dario",
    ),
    "test": (
        "Agnes", "Basil", "Corinna", "Dunja", "Edgar", "Freya", "Gianni", "Hedda", "Idris", "Judit", "Kaspar", "Livia",
        "Milan", "Ngozi", "Oskar", "Petra", "Raoul", "Selma", "Tariq", "Uma", "Valentin", "Wim", "Yasmin", "Zeno",
        "Astrid", "Benoit", "Cosima", "Dorian",
    ),
}  # fmt: skip
"""For each split the names that its problems draw from."""
