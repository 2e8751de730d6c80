"""The look of the report: one style sheet, system fonts, light and dark, phone and print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reclick.report.charts.colours import (
    DARK,
    HEAT_DARK,
    HEAT_LIGHT,
    LIGHT,
    SERIES_DARK,
    SERIES_LIGHT,
    heat,
)

DASHES = ("none", "6 3", "2 3", "8 3 2 3", "4 2", "1 2", "10 4", "7 2 2 2 2 2")


def style_sheet() -> str:
    """The whole style sheet. Dark colours are for screens: paper is light."""
    light = _variables(LIGHT, SERIES_LIGHT, heat(HEAT_LIGHT, ("#ffffff", "#111111")))
    dark = _variables(DARK, SERIES_DARK, heat(HEAT_DARK, ("#ffffff", "#111111")))
    series = "".join(
        f".s{n}{{--own:var(--s{n})}}.s{n} .line{{stroke-dasharray:{dash}}}"
        for n, dash in enumerate(DASHES, start=1)
    )
    levels = "".join(
        f".h{n}{{fill:var(--h{n})}}.t{n}{{fill:var(--t{n})}}"
        for n in range(len(heat(HEAT_LIGHT, ("#ffffff", "#111111"))))
    )
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}{TEXT}{TABLES}{DRAWINGS}{series}{levels}{PRINT}"


def _variables(
    theme: Mapping[str, str], series: Sequence[str], levels: Sequence[tuple[str, str]]
) -> str:
    named = {**theme, **{f"s{n}": colour for n, colour in enumerate(series, start=1)}}
    for n, (fill, ink) in enumerate(levels):
        named |= {f"h{n}": fill, f"t{n}": ink}
    return "".join(f"--{name}:{colour};" for name, colour in named.items())


TEXT = """
:root{color-scheme:light dark}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%;scroll-padding-top:1rem}
body{margin:0;background:var(--paper);color:var(--ink);font:1rem/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;
 overflow-wrap:break-word}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.skip{position:absolute;left:1rem;top:-4rem;background:var(--panel);padding:.5rem 1rem;z-index:3}
.skip:focus{top:1rem}
a{color:var(--accent);text-underline-offset:.2em}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:2px}
.frame{max-width:80rem;margin:0 auto;padding:0 1rem 4rem}
header{padding:3.5rem 0 1.5rem;max-width:46rem}
h1,h2,h3{font-family:"Iowan Old Style","Palatino Linotype",Palatino,"Book Antiqua",Georgia,serif;font-weight:600;line-height:1.2;text-wrap:balance}
h1{font-size:clamp(1.9rem,1.3rem + 2.6vw,3rem);margin:.3rem 0 1rem;letter-spacing:-.01em}
h2{font-size:clamp(1.5rem,1.2rem + 1.2vw,2rem);margin:0 0 .75rem}
h3{font-size:1.3rem;margin:3rem 0 .5rem}
p,dl{max-width:44rem}
p{margin:.5rem 0 1rem}
.kicker{color:var(--muted);font-size:.8rem;letter-spacing:.09em;text-transform:uppercase;margin:0}
.lede{font-size:1.2rem;line-height:1.55}
.note{color:var(--muted);font-size:.85rem;line-height:1.5;margin:.5rem 0 1.5rem}
.about{color:var(--muted)}
section{padding:3rem 0 0;margin:3rem 0 0;border-top:1px solid var(--rule)}
section:first-of-type{margin-top:0}
nav{padding-bottom:2.5rem}
nav ol{list-style:none;margin:0;padding:0;line-height:1.35}
nav li{margin:.4rem 0}
nav ol ol{display:none}
nav a{text-decoration:none}
nav a:hover{text-decoration:underline}
nav .kicker{margin:0 0 .6rem}
.tiles{display:grid;grid-template-columns:repeat(2,1fr);gap:1px;background:var(--rule);border:1px solid var(--rule);
 margin:1.5rem 0 2rem;border-radius:6px;overflow:hidden;max-width:none}
.tiles div{background:var(--panel);padding:1rem}
.tiles dt{color:var(--muted);font-size:.85rem}
.tiles dd{margin:0;font-size:1.5rem;font-variant-numeric:tabular-nums;line-height:1.3}
.tiles dd small{display:block;font-size:.8rem;color:var(--muted);line-height:1.4}
pre{background:var(--panel);border:1px solid var(--rule);border-radius:6px;padding:.9rem 1rem;white-space:pre-wrap;overflow-wrap:anywhere;
 font:.85rem/1.55 ui-monospace,"SF Mono",Menlo,Consolas,monospace}
code{font-family:ui-monospace,"SF Mono",Menlo,Consolas,monospace;font-size:.85em;overflow-wrap:anywhere}
footer{color:var(--muted);font-size:.85rem;margin-top:4rem;border-top:1px solid var(--rule);padding-top:1rem}
@media (min-width:40rem){.tiles{grid-template-columns:repeat(3,1fr)}}
@media (min-width:70rem){
 .frame{display:grid;grid-template-columns:12.5rem minmax(0,1fr);column-gap:3rem;padding:0 2rem 4rem}
 header,footer{grid-column:2}
 nav{grid-column:1;grid-row:1/span 2;position:sticky;top:0;align-self:start;max-height:100vh;overflow-y:auto;padding:3.8rem .25rem 2rem;
  font-size:.9rem}
 nav ol ol{display:block;padding-left:.8rem;border-left:1px solid var(--rule);margin:.25rem 0 .7rem;font-size:.85rem}
 nav ol ol li{margin:.25rem 0}
 main{grid-column:2;min-width:0}
}
"""

TABLES = """
.scroll{overflow-x:auto;width:fit-content;max-width:100%;margin:1rem 0 .5rem;border:1px solid var(--rule);border-radius:6px;background:var(--panel)}
table{border-collapse:separate;border-spacing:0;font-size:.92rem;line-height:1.35;font-variant-numeric:tabular-nums lining-nums}
th,td{padding:.5rem .6rem;text-align:right;vertical-align:top;border-top:1px solid var(--rule);white-space:nowrap}
thead tr:first-child th{border-top:0}
thead th{font-weight:500;white-space:normal;color:var(--muted);vertical-align:bottom;font-size:.92em}
thead tr+tr th{border-top:0;padding-top:0}
th[scope=row],thead tr:first-child th:first-child{text-align:left;position:sticky;left:0;background:var(--panel);z-index:1}
th[scope=row]{font-weight:600}
th bdi{display:inline-block;max-width:9rem;white-space:normal;overflow-wrap:break-word}
th[scope=colgroup]{text-align:center}
td small{display:block;color:var(--muted);font-size:.85em}
td.best{background:var(--best)}
td b{font-weight:750}
.tie{margin-left:.25em;color:var(--accent);font-weight:700}
.theirs{background:var(--theirs)}
td.theirs{white-space:normal;font-style:italic;color:var(--muted)}
tfoot th,tfoot td{color:var(--muted);font-size:.87em;font-weight:400}
abbr{text-decoration:none;cursor:help}
table.plain{font-size:.82rem}
table.plain th,table.plain td{padding:.3rem .7rem}
table.words td,table.words th{white-space:normal;text-align:left;overflow-wrap:anywhere;min-width:9rem;max-width:22rem}
.beside .legend{margin-top:1rem}
.beside{display:flex;flex-wrap:wrap;gap:0 2.5rem;align-items:flex-start}
.beside>*{min-width:0;max-width:100%}
.beside>:last-child{flex:1 1 18.5rem}
details summary{cursor:pointer;color:var(--muted);font-size:.82rem;padding:.35rem 0;width:max-content}
details summary:hover{color:var(--ink)}
@media (max-width:40rem){
 th,td{padding:.45rem .55rem}
 table{font-size:.88rem}
}
"""

DRAWINGS = """
.figs{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(18.5rem,100%),1fr));gap:2.25rem 2rem;margin:1.5rem 0 1.5rem}
figure{margin:0;min-width:0;display:grid;grid-template-columns:minmax(0,1fr);grid-template-rows:subgrid;grid-row:span 3;
 row-gap:.5rem;align-items:start}
figure>svg{display:block;width:100%;max-width:23rem;height:auto}
figcaption strong{font-weight:600}
figcaption span{display:block;line-height:1.45}
figcaption .said{font-size:.92rem;margin-top:.2rem}
figcaption .unit{color:var(--muted);font-size:.82rem;margin-top:.2rem}
svg text{font:11.5px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;fill:var(--ink);font-variant-numeric:tabular-nums}
svg .tick,svg .axis{fill:var(--muted)}
svg .t0,svg .value{fill:var(--ink)}
.grid{stroke:var(--rule);fill:none}
.floor{stroke:var(--axis);fill:none}
.diagonal{stroke:var(--axis);fill:none;stroke-dasharray:3 3}
.line{stroke:var(--own);fill:none;stroke-width:1.75;stroke-linejoin:round}
.whisker{stroke:var(--own);fill:none;stroke-width:1.1}
.mark{fill:var(--own);stroke:var(--paper);stroke-width:.6}
.bar{fill:var(--accent)}
.bar.repel{fill:var(--warm)}
.bar.satisfy{fill:var(--green)}
path.theirs{fill:var(--paper);stroke:var(--warm);stroke-width:1.6}
.dot{--own:var(--axis)}
.dot.best,.dot.tied{--own:var(--accent)}
.dot.best text{font-weight:700}
.dot.tied .mark{fill:var(--paper);stroke:var(--accent);stroke-width:1.6}
.dot .whisker{stroke-width:2}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;padding:0;margin:1.75rem 0 1rem;font-size:.88rem;max-width:none}
.legend li{min-width:0;overflow-wrap:anywhere;display:flex;align-items:center;gap:.45rem}
"""

PRINT = """
@media print{
 @page{size:A4;margin:16mm 14mm}
 body{font-size:9.5pt;background:#fff;print-color-adjust:exact;-webkit-print-color-adjust:exact}
 nav,.skip,details{display:none}
 .frame{display:block;padding:0;max-width:none}
 header{padding-top:0}
 section{margin-top:1.5rem;padding-top:1.5rem}
 h2,h3,.about,figcaption,.legend{break-after:avoid}
 figure,tr,.tiles,.scroll,.beside{break-inside:avoid}
 table.words th,table.words td{min-width:0}
 tfoot{display:table-row-group}
 .beside .figs{grid-template-columns:1fr}
 .figs{grid-template-columns:repeat(2,1fr);gap:1.2rem 1.5rem}
 .scroll{overflow:visible;border:0;background:none}
 table,table.plain{font-size:7pt}
 th,td,table.plain th,table.plain td{padding:.25rem .35rem}
 th[scope=row],thead tr:first-child th:first-child{position:static}
}
"""
