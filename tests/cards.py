"""Reads the card of an estimator back from its HTML."""

from html.parser import HTMLParser

TAGS = {"div", "dl", "dt", "dd", "svg", "title", "path", "rect", "text"}


class Card(HTMLParser):
    """The lines, the texts of the picture and the elements of a card; what follows it is left aside."""

    def __init__(self, html):
        super().__init__()
        self.lines, self.texts, self.tags, self.attributes, self.elements = {}, [], set(), set(), []
        self._open, self._name = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data):
        inside = self._open[-1] if self._open else ""
        if inside == "dt":
            self._name = data
        elif inside == "dd":
            self.lines[self._name] = self.lines.get(self._name, "") + data
        elif inside == "text":
            self.texts.append(data)
