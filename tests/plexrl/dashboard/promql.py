"""As much of PromQL as the alert rules use, over two scrapes ten minutes apart or less."""

import re

SELECTOR = re.compile(r"^(\w+)(?:\{(.*)\})?$")
MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')


def scraped(families):
    """Sample name and labels → value."""
    return {
        (f"{family.name}_total" if family.is_counter else family.name, frozenset(labels.items())): (
            float(value)
        )
        for family in families
        for labels, value in family.samples
    }


def vector(expression, before, after):
    """What an expression comes to at the second scrape: labels → value."""
    expression = expression.strip()
    if " and on() " in expression:
        left, right = expression.split(" and on() ")
        return vector(left, before, after) if vector(right, before, after) else {}
    if found := re.fullmatch(r"(.+) (>|==) (.+)", expression):
        return compared(*found.groups(), before, after)
    if found := re.fullmatch(r"(.+) / (.+)", expression):
        left, right = (vector(part, before, after) for part in found.groups())
        return {labels: left[labels] / right[labels] for labels in left.keys() & right.keys()}
    if found := re.fullmatch(r"sum\((.+)\)", expression):
        values = vector(found[1], before, after).values()
        return {frozenset(): sum(values)} if values else {}
    if found := re.fullmatch(r"max by \((\w+)\) \((.+)\)", expression):
        largest = {}
        for labels, value in vector(found[2], before, after).items():
            kept = frozenset(item for item in labels if item[0] == found[1])
            largest[kept] = max(value, largest.get(kept, value))
        return largest
    if found := re.fullmatch(r"(?:increase|delta)\((.+)\[10m\]\)", expression):
        new, old = selected(found[1], after), selected(found[1], before)
        return {labels: new[labels] - old[labels] for labels in new.keys() & old.keys()}
    return selected(expression, after)


def compared(left, sign, right, before, after):
    values = vector(left, before, after)
    if re.fullmatch(r"[\d.]+", right):
        limits = dict.fromkeys(values, float(right))
    else:
        limits = vector(right, before, after)
    holds = {">": float.__gt__, "==": float.__eq__}[sign]
    return {
        labels: value
        for labels, value in values.items()
        if labels in limits and holds(value, limits[labels])
    }


def selected(selector, samples):
    name, matchers = SELECTOR.match(selector).groups()
    wanted = MATCHER.findall(matchers or "")
    return {
        labels: value
        for (sample, labels), value in samples.items()
        if sample == name
        and all(
            re.fullmatch(text if sign == "=~" else re.escape(text), dict(labels).get(label, ""))
            for label, sign, text in wanted
        )
    }
