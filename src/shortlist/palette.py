"""The colors of all drawings: one set for print, and one for pages in light and in dark mode.

Use them in this order. The page of a report writes ``LIGHT`` and ``DARK`` into its style, so that its
drawings follow the reader's theme; every drawing by matplotlib takes ``PRINT``.
"""

# Okabe and Ito without yellow and black, and two of Tol: the color-blind tell them apart
PRINT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933")
GOOD, BAD = "#1A7A3C", "#B2182B"  # for marks of what was found and what was lost

# the same hues, darker or paler: small letters in these colors have a contrast of 4.5 or more (WCAG 2)
LIGHT = ("#1f62b5", "#c2410c", "#14786a", "#9c2a8b", "#7a6200", "#2f6f9f", "#b01846", "#4b5563")
DARK = ("#7fb2ff", "#ff9d66", "#5fd6c3", "#ec8fe0", "#e0c24a", "#8fc9ef", "#ff8aa8", "#b8c2cc")
