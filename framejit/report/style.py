"""How the page looks, and its few keys."""
from __future__ import annotations

from framejit.report.element import Html

STYLE = Html("""
:root { color-scheme: light dark; --back: #fff; --text: #1c2128; --soft: #57606a; --line: #d0d7de; --panel: #f6f8fa;
  --mark: #fff1c2; --link: #0550ae; --bad: #b3261e; --good: #176f2c; --bar: #6f9fd8; --bar2: #d9822b; --box: #e7eef8; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6edf3; --soft: #9aa5b1; --line: #30363d;
  --panel: #161b22; --mark: #5a4500; --link: #79b8ff; --bad: #ff8a80; --good: #7ee2a0;
  --bar: #3f75b5; --bar2: #c77a2a; --box: #1c2a3d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .6rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: .6rem 0 .4rem; overflow-wrap: anywhere; }
a { color: var(--link); }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
nav ul, .facts { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; list-style: none; padding: 0; margin: .6rem 0; }
.facts li { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .3rem .8rem; }
.facts b { font-size: 1.2rem; }
.soft { color: var(--soft); }
.skip { position: absolute; left: -99rem; }
.skip:focus { position: static; }
code, pre, .code { font: 13px/1.5 ui-monospace, monospace; }
pre { margin: .4rem 0; overflow-x: auto; background: var(--panel); padding: .6rem; border-radius: 6px; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
details { margin: .4rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
.finding { border: 1px solid var(--line); border-left-color: var(--bar2); border-left-width: 4px;
 border-radius: 6px; padding: .5rem .8rem; margin: .6rem 0; background: var(--panel); }
.finding pre { background: var(--back); }
.finding p { margin: .3rem 0; overflow-wrap: anywhere; }
mark { background: var(--mark); color: inherit; border-radius: 2px; }
.row { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 20rem); gap: 0 1rem; padding: 0 .6rem; }
.row .code { white-space: pre; overflow-x: auto; }
.row.hit { background: var(--panel); padding-block: .2rem; }
.row aside { font-size: .88rem; }
.row .no { display: inline-block; min-width: 3rem; text-align: right; padding-right: .8rem; color: var(--soft);
  user-select: none; }
.gap { color: var(--soft); padding: 0 .6rem; }
.add { color: var(--good); }
.del { color: var(--bad); }
.recompile { white-space: pre-wrap; overflow-wrap: anywhere; }
.tree, .tree ul { list-style: none; padding-left: 1.1rem; margin: .2rem 0; }
.tree li { overflow-wrap: anywhere; }
.tree { font: 13px/1.6 ui-monospace, monospace; }
svg text { fill: var(--text); font: 12px ui-monospace, monospace; }
svg .box { fill: var(--box); stroke: var(--line); }
svg .input { fill: var(--panel); stroke: var(--line); }
svg .edge { fill: none; stroke: var(--soft); }
svg .bar { fill: var(--bar); }
svg .part { fill: var(--bar2); }
svg .grid { stroke: var(--line); }
@media (max-width: 46rem) {
  body { padding: .6rem; }
  .row { grid-template-columns: minmax(0, 1fr); }
  .row aside { padding: 0 0 .4rem 3rem; }
  table.wide, table.wide tbody, table.wide tr, table.wide td { display: block; }
  table.wide thead { display: none; }
  table.wide tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  table.wide td { border: 0; padding: 0 .2rem; overflow-wrap: anywhere; }
}
@media print { nav { display: none; } }
""")

SCRIPT = Html("""
const findings = [...document.querySelectorAll(".finding")];
let at = -1;
addEventListener("keydown", (event) => {
  if (event.target.matches("input, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { j: 1, k: -1 }[event.key];
  if (step && findings.length) {
    at = Math.min(findings.length - 1, Math.max(0, at + step));
    findings[at].focus();
    findings[at].scrollIntoView({ block: "center" });
  }
  if (event.key === "o") {
    const all = [...document.querySelectorAll("details")], open = !all.every((one) => one.open);
    all.forEach((one) => { one.open = open; });
  }
});
const show = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
};
addEventListener("hashchange", show);
show();
""")
