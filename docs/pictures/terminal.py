# SPDX-License-Identifier: BSD-2-Clause
"""Films a terminal: terminal.py COLUMNS LINES STILL <STEPS >FILM.svg

A step is a line: "say COMMAND" types a command line and starts it, "keys KEY..."
presses keys as tmux names them, "watch SECONDS" lets time pass. What the terminal
shows then, each half a second, is a picture of the film. Picture number STILL is
what is shown where nothing moves. Wants tmux.
"""

import html
import re
import subprocess
import sys
import time

COLUMNS, LINES, STILL = map(int, sys.argv[1:4])
WIDTH, HEIGHT, MARGIN = 8.0, 18, 14
PALETTE = ["#16181c", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dce3"]
BRIGHT = ["#7d8590"] + PALETTE[1:7] + ["#ffffff"]
PAPER, INK = PALETTE[0], PALETTE[7]
TMUX = ["tmux", "-L", "gousdt-film", "-f", "/dev/null"]


def tmux(*words):
    return subprocess.run([*TMUX, *words], check=True, capture_output=True, text=True).stdout


def colour(number):
    if number < 8:
        return PALETTE[number]
    if number < 16:
        return BRIGHT[number - 8]
    if number >= 232:
        return "#%02x%02x%02x" % ((8 + 10 * (number - 232),) * 3)
    cube = [0, 95, 135, 175, 215, 255]
    number -= 16
    return "#%02x%02x%02x" % (cube[number // 36], cube[number // 6 % 6], cube[number % 6])


def spans(line):
    """Divides a line with escapes into its texts, each with its colours."""
    ink, paper, bold, dim, turned = INK, PAPER, False, False, False
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b"):
            if part:
                front, back = (paper, ink) if turned else (ink, paper)
                yield part, front, back, bold, dim
            continue
        codes = [int(c or 0) for c in part[2:-1].split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                ink, paper, bold, dim, turned = INK, PAPER, False, False, False
            elif code in (1, 2, 7):
                bold, dim, turned = bold or code == 1, dim or code == 2, turned or code == 7
            elif code in (38, 48) and codes[:1] == [5]:
                found, codes = colour(codes[1]), codes[2:]
                ink, paper = (found, paper) if code == 38 else (ink, found)
            elif 30 <= code < 38 or 90 <= code < 98:
                ink = colour(code - 30 if code < 90 else code - 82)
            elif 40 <= code < 48 or 100 <= code < 108:
                paper = colour(code - 40 if code < 100 else code - 92)
            elif code in (39, 49):
                ink, paper = (INK, paper) if code == 39 else (ink, PAPER)


def draw(line):
    """Returns a line as SVG, at the origin."""
    out, text, at = "", "", 0
    for part, front, back, bold, dim in spans(line):
        if back != PAPER:
            out += f'<rect x="{at * WIDTH:g}" y="-13" width="{len(part) * WIDTH:g}" height="{HEIGHT}" fill="{back}"/>'
        style = "" if front == INK else f' fill="{front}"'
        style += ' font-weight="bold"' if bold else ""
        style += ' opacity=".6"' if dim else ""
        escaped = html.escape(part, quote=False).replace(" ", "\N{NO-BREAK SPACE}")
        text += f"<tspan{style}>{escaped}</tspan>" if style else escaped
        at += len(part)
    # Whatever the font is, columns stand where they do in a terminal.
    return out + f'<text textLength="{at * WIDTH:g}" lengthAdjust="spacingAndGlyphs">{text}</text>'


pictures, said = [], []
tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), "PS1='$ ' exec bash --norc --noprofile")
try:
    tmux("set", "status", "off")
    time.sleep(0.5)
    for step in sys.stdin.read().splitlines():
        kind, _, rest = step.partition(" ")
        if kind == "say":
            said.append(rest)
            for i in range(0, len(rest), 12):
                tmux("send-keys", "-l", rest[i : i + 12])
                time.sleep(0.1)
                pictures.append((0.2, tmux("capture-pane", "-e", "-p")))
            tmux("send-keys", "Enter")
        elif kind == "keys":
            tmux("send-keys", *rest.split())
        else:
            for _ in range(int(float(rest) * 2)):
                time.sleep(0.5)
                pictures.append((0.5, tmux("capture-pane", "-e", "-p")))
finally:
    tmux("kill-server")

# A line that several pictures have is drawn once.
lines, total = {}, sum(seconds for seconds, _ in pictures)
groups, rules, at = "", "", 0
for number, (seconds, shown) in enumerate(pictures):
    groups += f'<g class="p" id="p{number}">'
    for row, line in enumerate(shown.splitlines()):
        if line.strip():
            name = lines.setdefault(line.rstrip(), f"l{len(lines)}")
            groups += f'<use href="#{name}" y="{row * HEIGHT}"/>'
    groups += "</g>\n"
    begin, end = 100 * at / total, 100 * (at + seconds) / total
    at += seconds
    hidden = "0%{visibility:hidden}" if begin else ""
    rules += f"@keyframes k{number}{{{hidden}{begin:.3f}%{{visibility:visible}}{end:.3f}%,100%{{visibility:hidden}}}}"
    rules += f"#p{number}{{animation:k{number} {total:g}s step-end 2}}\n"
width, height = COLUMNS * WIDTH + 2 * MARGIN, LINES * HEIGHT + 2 * MARGIN
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}">')
print(f"<title>{html.escape('; '.join(said), quote=False)}</title>")
print("<style>text{font:13.3px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre;fill:" + INK + "}")
print(".p{visibility:hidden}#p%d{visibility:visible}" % (STILL % len(pictures)))
print("@media (prefers-reduced-motion:no-preference){\n" + rules + "}</style>")
print("<defs>" + "\n".join(f'<g id="{name}">{draw(line)}</g>' for line, name in lines.items()) + "</defs>")
print(f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>')
print(f'<g transform="translate({MARGIN} {MARGIN + 13})">\n{groups}</g>\n</svg>')
