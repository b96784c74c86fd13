"""A folder of somebody's own documents as pages: Markdown, text, reStructuredText, HTML, notebooks, office documents, the text of PDFs.

Headings become Markdown headings, so that they are sections. What is not taken is named with its reason, never an error of the whole.
"""
