"""Sizes that are not assumed: integers known as expressions over the sizes of inputs, and what was asked about them."""
