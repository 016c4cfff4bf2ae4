"""Colours of a picture, on a light and on a dark ground.

Words have at least 7 to 1 on everything that they stand on, lines 3 to 1 (WCAG 2.2, 1.4.6 and
1.4.11); what a colour says is said by words too.
"""

LIGHT = {
    "ground": "#ffffff",
    "ink": "#1b1b1b",
    "line": "#4a4a4a",
    "link": "#0b6aa8",
    "mark": "#b3261e",
    "cell": "#3a5a8c",
    "empty": "#e6e9ee",
    "input": "#f2f2f2",
    "embedding": "#dcebfa",
    "position": "#fdeccb",
    "norm": "#fbf6c4",
    "attention": "#fbdcd0",
    "ffn": "#d5f0dc",
    "product": "#ffffff",
    "dropout": "#eeeeee",
    "scale": "#eeeeee",
    "sum": "#ffffff",
    "head": "#e6dcf7",
    "group": "#f7f8fa",
}
DARK = {
    "ground": "#16181c",
    "ink": "#ececec",
    "line": "#b4b8bf",
    "link": "#6cb8ee",
    "mark": "#ff8a80",
    "cell": "#8fb4ec",
    "empty": "#2b2f36",
    "input": "#2a2c30",
    "embedding": "#17324a",
    "position": "#463514",
    "norm": "#3f3c12",
    "attention": "#4a2519",
    "ffn": "#173a22",
    "product": "#16181c",
    "dropout": "#303236",
    "scale": "#303236",
    "sum": "#16181c",
    "head": "#33264d",
    "group": "#1c1f24",
}
FILLS = tuple(LIGHT)[7:]
"""What boxes are filled with; text stands on all of them and on the ground."""
