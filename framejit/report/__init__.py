"""The report as one HTML file that needs nothing else.

    element        HTML that is escaped by construction
    style          how it looks, light and dark, wide and narrow
    timeline       when frames were captured and graphs compiled
    source         the source around findings, with what was found in the margin
    graph_drawing  graphs as pictures
    guard_tree     guards as a tree
    kernels        what backends told about their kernels
    finding_card   a finding
    html           the page
    notebook       an explanation or a status in a cell of a notebook, which brings its own colours

Nothing here knows where what it shows comes from: `framejit/events` and `framejit/findings` hand it over.
"""
