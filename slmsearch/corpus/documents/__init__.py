"""Readers that turn a folder of documents into pages: Markdown, text, reStructuredText, HTML, notebooks, office documents, the text of
PDFs.

Headings become Markdown headings, so they begin sections. A file that cannot be read is listed with its reason and never fails the folder.
"""
