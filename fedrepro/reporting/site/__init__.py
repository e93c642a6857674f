"""Build the site: notebooks with their outputs, the answers, an explorer of printed numbers, a reference, a glossary.

Read the modules in this order: `build` (the order of the steps, and Sphinx's settings), `sources` (what each page is
made from), `explorer` (printed numbers next to ours), `copies` (a notebook as a page, and for students), `docstrings`.
The site is read without a network and without a server. Everything it loads lies in its folder.
"""
