"""The page's style sheet: light and dark by the reader's own setting; colours that the colour-blind can tell apart.

c1 to c6 and rest are bands (after Okabe and Ito), a1 to a5 ages from young to old, h1 to h8 cells of a table. What is
wider than the page has a shade at the side where it goes on: a phone shows no scroll bar.
"""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --card: #ffffff; --ink: #1c2024; --soft: #59626c; --rule: #e4e6e8; --base: #a9b0b7;
  --link: #0b5cad;
  --c1: #0072b2; --c2: #e69f00; --c3: #b0306a; --c4: #009e73; --c5: #56b4e9; --c6: #8a5a2b; --rest: #9aa1a8;
  --a1: #cfe3f3; --a2: #93c1e2; --a3: #4b93c7; --a4: #1a5f9e; --a5: #082f5e;
  --good: #00714f; --bad: #b3261e; --heat: 11, 92, 173;
  --under: var(--page); --shade: rgba(28, 32, 36, .18);
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --card: #1b1f23; --ink: #e6e8ea; --soft: #a0a8b0; --rule: #2d3339; --base: #59626c;
    --link: #7fb8ef;
    --c1: #3f9bdc; --c2: #f0b429; --c3: #e377ae; --c4: #2fbf95; --c5: #9bd3f5; --c6: #c99a6b; --rest: #7d858d;
    --a1: #1f4a6e; --a2: #2a6aa3; --a3: #3f8fcf; --a4: #7db8e4; --a5: #d8ecfb;
    --good: #4cc79b; --bad: #ff8a80; --heat: 90, 165, 230;
    --shade: rgba(230, 232, 234, .22);
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1rem 3rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; }
h1, h2, h3, p, li, summary { overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .25rem; }
h3 { font-size: 1rem; margin: 0; }
p { margin: 0 0 .75rem; }
a { color: var(--link); }
.covers { margin: .25rem 0 1rem; color: var(--soft); }
.covers b { color: var(--ink); font-weight: 600; }
.about, figcaption p, footer, .nothing { color: var(--soft); }
.about { max-width: 48rem; }
nav { position: sticky; top: 0; z-index: 1; background: var(--page); border-bottom: 1px solid var(--rule); }
nav ul { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; list-style: none; margin: 0; padding: .6rem 0; }
nav a { text-decoration: none; font-size: .9rem; }
nav a:hover { text-decoration: underline; }
section { padding-top: 1.5rem; margin-bottom: 1.5rem; scroll-margin-top: 3rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 0 0 1rem; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: .5rem; padding: .7rem .9rem; }
.tile dt { font-size: .85rem; color: var(--soft); }
.tile dd { margin: 0; font-size: .85rem; color: var(--soft); }
.tile .large { font-size: 1.5rem; line-height: 1.25; font-weight: 600; color: var(--ink); white-space: nowrap; }
figure, .section-table { margin: 1rem 0; }
figure { --under: var(--card); background: var(--card); border: 1px solid var(--rule); border-radius: .5rem;
  padding: .8rem .9rem; }
figcaption p { margin: 0; font-size: .875rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 0 1rem; }
.pair figure { margin: .5rem 0; min-width: 0; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; list-style: none; margin: .4rem 0; padding: 0;
  font-size: .875rem; }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .4em; border-radius: 2px;
  background: currentColor; }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; background-repeat: no-repeat;
  background-image: linear-gradient(to right, var(--under) 40%, transparent),
    linear-gradient(to left, var(--under) 40%, transparent),
    linear-gradient(to right, var(--shade), transparent), linear-gradient(to left, var(--shade), transparent);
  background-position: left, right, left, right; background-size: 2rem 100%, 2rem 100%, .7rem 100%, .7rem 100%;
  background-attachment: local, local, scroll, scroll; }
figure .scroll { margin: .4rem 0 0; }
.scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
svg.plot { display: block; width: 100%; height: auto; min-width: 46rem; }
svg.small { min-width: 20rem; }
svg text { font-size: 12px; fill: var(--soft); }
svg text.y { text-anchor: end; }
.rule { stroke: var(--rule); fill: none; }
.base { stroke: var(--base); fill: none; }
.area { fill: currentColor; }
.plot .area { stroke: var(--card); stroke-width: .6; stroke-linejoin: round; }
.line { stroke: currentColor; fill: none; stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round; }
.line.far { stroke-width: 1; stroke-dasharray: 1 3; }
.line.peak { stroke-width: 1.2; }
.line.limit { stroke-width: 1.4; stroke-dasharray: 5 4; }
.hit { fill: transparent; }
.hit:hover { fill: var(--ink); fill-opacity: .12; }
.c1, .delivered { color: var(--c1); } .c2, .deferred, .deferring { color: var(--c2); }
.c3, .bounced, .dead { color: var(--c3); } .c4 { color: var(--c4); } .c5, .slow { color: var(--c5); }
.c6 { color: var(--c6); } .rest, .far { color: var(--rest); } .peak { color: var(--c2); } .limit { color: var(--c3); }
.a1 { color: var(--a1); } .a2 { color: var(--a2); } .a3 { color: var(--a3); } .a4 { color: var(--a4); }
.a5 { color: var(--a5); }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
table.wide, table.shape { width: 100%; }
caption { text-align: left; font-weight: 600; padding: .25rem 0 .4rem; }
caption span { display: inline-block; position: sticky; left: 0; max-width: calc(100vw - 2rem); }
th, td { padding: .28rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
th:first-child { padding-left: 0; }
thead th { color: var(--soft); font-weight: 500; vertical-align: bottom; border-bottom-color: var(--base); }
th[title] { text-decoration: underline dotted var(--base); text-underline-offset: .2em; cursor: help; }
tbody th { font-weight: 400; }
.when { white-space: nowrap; }
.number { text-align: right; white-space: nowrap; }
td.nothing { color: var(--base); }
.log { overflow-wrap: anywhere; }
td .log { display: inline-block; min-width: 5rem; }
td:last-child .log { min-width: 10rem; }
th .log { display: inline-block; min-width: 10rem; }
.bar { display: block; width: 6rem; height: .7rem; margin-top: .35rem; background: var(--rule); border-radius: 2px; }
.shape td, .shape th { padding: .2rem .45rem; }
.shape th:first-child { padding-left: 0; min-width: 12rem; }
.h1 { background: rgba(var(--heat), .08); } .h2 { background: rgba(var(--heat), .14); }
.h3 { background: rgba(var(--heat), .20); } .h4 { background: rgba(var(--heat), .26); }
.h5 { background: rgba(var(--heat), .32); } .h6 { background: rgba(var(--heat), .39); }
.h7 { background: rgba(var(--heat), .46); } .h8 { background: rgba(var(--heat), .54); }
.verdict { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
summary { cursor: pointer; color: var(--link); }
footer { border-top: 1px solid var(--rule); padding-top: 1rem; font-size: .875rem; }
@media (max-width: 40rem) { nav { position: static; } body { padding-top: 1rem; } .bar { width: 3.5rem; }
  td:last-child .log { min-width: 18rem; } }
@media print { nav { display: none; } figure, tr { break-inside: avoid; } .hit { display: none; } }
"""
