"""The page's style sheet: light and dark, nothing loaded from elsewhere."""

STYLE = """
:root{color-scheme:light dark;--ink:#1d2733;--quiet:#5f6b77;--line:#dde2e7;--page:#fff;
--card:#f6f8fa;--good:#2f6fb5;--near:#b97a00;--bad:#c8202c;--void:#6d3fb0;--s0:#3f7fca;
--s1:#1b9e77;--s2:#a8569c;--s3:#8a6d1f;--s4:#4aa3c7}
@media(prefers-color-scheme:dark){:root{--ink:#e4e9ee;--quiet:#98a4b0;--line:#333c45;--page:#14181d;
--card:#1b2127;--good:#6aa5e8;--near:#e6a62e;--bad:#ff5f66;--void:#b79af0;--s0:#6aa5e8;
--s1:#4fc79e;--s2:#cf8ac6;--s3:#c9ab5a;--s4:#7cc8e6}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:2rem auto;
max-width:70rem;padding:0 1.2rem}
h1{font-size:1.35rem;margin:.3rem 0}h2{font-size:1.08rem;margin:2rem 0 .5rem}
h3{font-size:.98rem;margin:.2rem 0 .3rem;overflow-wrap:anywhere}p{margin:.3rem 0}
.quiet{color:var(--quiet);font-size:.87rem;font-weight:400}.bad{color:var(--bad);font-weight:600}
.near{color:var(--near);font-weight:600}
.badge{display:inline-block;font-weight:700;font-size:.85rem;letter-spacing:.06em;
padding:.1rem .7rem;border-radius:1rem;border:1.5px solid currentColor;margin:0}
.badge.good{color:var(--good)}.badge.near{color:var(--near)}
.badge.bad{color:var(--bad)}.badge.void{color:var(--void)}
.verdict{font-size:1.02rem;overflow-wrap:anywhere}
.problem{white-space:pre-wrap;color:var(--void);border-left:3px solid var(--void);
padding:.2rem .8rem}
.facts{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:.87rem;
color:var(--quiet);margin:.7rem 0}.facts dd{margin:0;overflow-wrap:anywhere}
.answers{padding-left:1.4rem;margin:.4rem 0}.answers li{margin:.45rem 0;overflow-wrap:anywhere}
.answers b{display:block}
pre{background:var(--card);border-radius:6px;padding:.6rem .8rem;
white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem}
.card{background:var(--card);border-radius:8px;padding:.6rem 1rem;margin:.6rem 0}
summary{cursor:pointer;overflow-wrap:anywhere}summary b{margin-right:.5rem}
.figures{display:flex;flex-wrap:wrap;gap:.3rem 1.6rem;margin:.4rem 0}
.figures dt{color:var(--quiet);font-size:.8rem}.figures dd{margin:0;font-weight:600;
font-variant-numeric:tabular-nums}
.two{display:grid;grid-template-columns:1fr 1fr;gap:.6rem 2rem}
@media(max-width:50rem){.two{grid-template-columns:1fr}}
table{border-collapse:collapse;width:100%;font-size:.86rem}
td,th{padding:.22rem .55rem;border-bottom:1px solid var(--line);text-align:left;
vertical-align:top}th{color:var(--quiet);font-weight:500;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.scroll{overflow-x:auto}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.3rem;font-size:.87rem}
.legend i{display:inline-block;width:.7rem;height:.7rem;border-radius:50%;margin-right:.4rem}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--quiet);font-size:11px}svg text.bad{fill:var(--bad);font-weight:600}
.grid{stroke:var(--line);stroke-width:1}.limit{stroke:var(--bad);stroke-width:1.5;
stroke-dasharray:6 4}
.line{fill:none;stroke-width:1.2;stroke-opacity:.45}
.c0{stroke:var(--s0)}.c1{stroke:var(--s1)}.c2{stroke:var(--s2)}.c3{stroke:var(--s3)}
.c4{stroke:var(--s4)}
.d0,.k0{fill:var(--s0);background:var(--s0)}.d1,.k1{fill:var(--s1);background:var(--s1)}
.d2,.k2{fill:var(--s2);background:var(--s2)}.d3,.k3{fill:var(--s3);background:var(--s3)}
.d4,.k4{fill:var(--s4);background:var(--s4)}
.cq{stroke:var(--quiet)}.dq,.kq{fill:var(--quiet);background:var(--quiet)}
circle.bad{fill:var(--bad)}circle.near{fill:var(--near)}
.ring{stroke-width:2.2}.ring.of-bad{stroke:var(--bad)}.ring.of-near{stroke:var(--near)}
.bar{fill:var(--s0)}.bar.none{fill:var(--line)}.cell{fill:var(--bad)}
"""
