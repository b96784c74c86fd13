#!/usr/bin/env bash
# python-pptx: a text box that holds a formula is no shape of its slide, and all of its text is missing from whoever reads `slide.shapes`.
#
# python-pptx 1.0.2: PowerPoint writes such a box twice, as choice and fallback of an `mc:AlternateContent` element of the shape tree.
# `slide.shapes` looks at the tree's direct children, and this element is none that it knows: neither is listed, nothing is raised, and
# the words around the formula are lost with it. The same element holds shapes with ink and 3-d models.
# Seen 30 November 2026, Python 3.11:
#   shapes of the slide: ['Low water']; text in the file: 'Low water', 'The tide takes ', ' of a day.'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet 'python-pptx==1.0.2'
"$folder/env/bin/python" - <<'EOF'
import io

from pptx import Presentation
from pptx.oxml import parse_xml

BOX = """<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"
 xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"
 xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math">
<mc:Choice Requires="a14"><p:sp><p:nvSpPr><p:cNvPr id="9" name="Box"/><p:cNvSpPr txBox="1"/><p:nvPr/></p:nvSpPr><p:spPr/>
<p:txBody><a:bodyPr/><a:p><a:r><a:t>The tide takes </a:t></a:r><a14:m><m:oMath><m:r><m:t>x</m:t></m:r></m:oMath></a14:m>
<a:r><a:t> of a day.</a:t></a:r></a:p></p:txBody></p:sp></mc:Choice><mc:Fallback/></mc:AlternateContent>"""
deck, file = Presentation(), io.BytesIO()
slide = deck.slides.add_slide(deck.slide_layouts[6])
slide.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "Low water"
slide.shapes._spTree.append(parse_xml(BOX))
deck.save(file)
read = Presentation(file).slides[0]
listed = [shape.text_frame.text for shape in read.shapes]
written = [node.text for node in read._element.iter("{http://schemas.openxmlformats.org/drawingml/2006/main}t")]
print("shapes of the slide:", listed, "- text in the file:", written)
assert listed == ["Low water"] and written == ["Low water", "The tide takes ", " of a day."]
EOF
