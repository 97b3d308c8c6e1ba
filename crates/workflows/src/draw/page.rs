//! An interactive chart: one HTML file without external resources. Only visible rows are drawn, one per pixel at most, so a
//! hundred thousand tasks remain usable.

use report::{escaped, script_json};
use serde_json::json;

use super::{Gantt, Part, RowNote};

const STYLE: &str = "body{font:14px/1.4 system-ui,sans-serif;color:#222;margin:1rem}h1{font-size:1.2rem;margin:0 0 .5rem}\
canvas{width:100%;height:calc(100vh - 9rem);border:1px solid #ddd;cursor:grab;display:block}\
#tip{position:fixed;background:#fff;border:1px solid #888;padding:.4rem .6rem;font-size:12px;pointer-events:none;display:none;white-space:pre}\
.key{display:inline-block;margin-right:1rem;font-size:12px}.key i{display:inline-block;width:10px;height:10px;margin-right:4px;border:1px solid #bbb}\
input{font:inherit;padding:.1rem .4rem}";

const SCRIPT: &str = r#"
const data=JSON.parse(document.getElementById('data').textContent);
const canvas=document.getElementById('chart'),tip=document.getElementById('tip'),find=document.getElementById('find');
const ctx=canvas.getContext('2d');let rows=data.rows,view={t0:0,t1:data.seconds||1,r0:0,r1:rows.length},left=180;
function fit(){const d=devicePixelRatio||1;canvas.width=canvas.clientWidth*d;canvas.height=canvas.clientHeight*d;ctx.setTransform(d,0,0,d,0,0);draw()}
function draw(){const w=canvas.clientWidth,h=canvas.clientHeight,bottom=h-18;ctx.clearRect(0,0,w,h);
const sx=(w-left)/(view.t1-view.t0),sy=bottom/(view.r1-view.r0),step=Math.max(1,Math.ceil(1/sy));
for(let r=Math.max(0,Math.floor(view.r0/step)*step);r<Math.min(rows.length,view.r1);r+=step){const row=rows[r],y=(r-view.r0)*sy,height=Math.max(1,sy*step-(sy>5?1:0));
let from=0;row.e.forEach((to,p)=>{if(to>from&&data.parts[p].shown){const x0=Math.max(left,left+(from-view.t0)*sx),x1=Math.min(w,left+(to-view.t0)*sx);
if(x1>x0){ctx.fillStyle=data.parts[p].colour;ctx.fillRect(x0,y,Math.max(.5,x1-x0),height)}}from=Math.max(from,to)});
if(row.c&&sy>3){ctx.strokeStyle='#111';const x0=Math.max(left,left+(row.e[0]-view.t0)*sx);ctx.strokeRect(x0+.5,y+.5,Math.max(1,(row.e[8]-row.e[0])*sx-1),Math.max(1,height-1))}
if(sy>9){ctx.fillStyle=row.f?'#c62828':'#333';ctx.font=Math.min(12,sy-1)+'px sans-serif';ctx.textBaseline='middle';ctx.fillText((row.n+(row.a>1?' (attempt '+row.a+')':'')).slice(0,30),2,y+height/2)}}
ctx.fillStyle='#555';ctx.font='11px sans-serif';ctx.textBaseline='alphabetic';
for(let i=0;i<=8;i++){const t=view.t0+(view.t1-view.t0)*i/8;ctx.fillText(Math.round(t)+' s',Math.min(w-40,left+(t-view.t0)*sx),h-4)}}
function at(e){const b=canvas.getBoundingClientRect(),x=e.clientX-b.left,y=e.clientY-b.top,h=canvas.clientHeight-18;
return{t:view.t0+(x-left)/(canvas.clientWidth-left)*(view.t1-view.t0),r:view.r0+y/h*(view.r1-view.r0)}}
canvas.addEventListener('wheel',e=>{e.preventDefault();const p=at(e),f=Math.exp(e.deltaY*.002);
if(!e.shiftKey){view.t0=p.t-(p.t-view.t0)*f;view.t1=p.t+(view.t1-p.t)*f}
view.r0=p.r-(p.r-view.r0)*f;view.r1=p.r+(view.r1-p.r)*f;bound();draw()},{passive:false});
function bound(){view.t0=Math.max(0,view.t0);view.t1=Math.min(data.seconds,Math.max(view.t0+.1,view.t1));view.r0=Math.max(0,view.r0);view.r1=Math.min(rows.length,Math.max(view.r0+1,view.r1))}
let held=null;canvas.addEventListener('mousedown',e=>{held={x:e.clientX,y:e.clientY,...view}});addEventListener('mouseup',()=>held=null);
canvas.addEventListener('mousemove',e=>{if(held){const dt=(held.x-e.clientX)/(canvas.clientWidth-left)*(held.t1-held.t0),dr=(held.y-e.clientY)/(canvas.clientHeight-18)*(held.r1-held.r0);
const t=Math.min(Math.max(dt,-held.t0),data.seconds-held.t1),r=Math.min(Math.max(dr,-held.r0),rows.length-held.r1);view={t0:held.t0+t,t1:held.t1+t,r0:held.r0+r,r1:held.r1+r};draw();return}
const row=rows[Math.floor(at(e).r)];if(!row){tip.style.display='none';return}
let from=0,text=row.n+'  ('+row.k+', attempt '+row.a+(row.f?', failed':'')+(row.s?', '+row.s:'')+(row.c?', on the critical path':'')+')';
row.e.forEach((to,p)=>{if(to>from+.0005)text+='\n'+data.parts[p].name+': '+(to-from).toFixed(1)+' s';from=Math.max(from,to)});
tip.textContent=text;tip.style.display='block';tip.style.left=Math.min(innerWidth-260,e.clientX+14)+'px';tip.style.top=Math.min(innerHeight-180,e.clientY+14)+'px'});
canvas.addEventListener('mouseleave',()=>tip.style.display='none');
canvas.addEventListener('dblclick',()=>{view={t0:0,t1:data.seconds||1,r0:0,r1:rows.length};draw()});
find.addEventListener('input',()=>{const word=find.value.toLowerCase();rows=data.rows.filter(r=>(r.n+' '+r.k).toLowerCase().includes(word));view.r0=0;view.r1=Math.max(1,rows.length);draw()});
addEventListener('resize',fit);fit();
"#;

pub fn html(gantt: &Gantt) -> String {
    let colour = |part: Part| {
        let [red, green, blue] = part.colour();
        format!("#{red:02x}{green:02x}{blue:02x}")
    };
    let is_shown = |part: Part| !matches!(part, Part::Ready | Part::Finished);
    let parts: Vec<_> = Part::ALL
        .map(|part| json!({ "name": part.name(), "colour": colour(part), "shown": is_shown(part) }))
        .to_vec();
    let round = |seconds: f64| (seconds * 1e3).round() / 1e3;
    let rows: Vec<_> = gantt
        .rows
        .iter()
        .map(|row| {
            json!({ "n": row.task, "k": row.kind, "a": row.attempt, "f": row.has_failed, "c": row.is_critical,
                "s": row.note.map(RowNote::name), "e": row.ends.map(round) })
        })
        .collect();
    let data = script_json(&json!({ "seconds": round(gantt.seconds), "parts": parts, "rows": rows }));
    let keys: String = Part::ALL
        .into_iter()
        .filter(|part| is_shown(*part))
        .map(|part| {
            format!("<span class=\"key\"><i style=\"background:{}\"></i>{}</span>", colour(part), part.name())
        })
        .collect();
    let title = escaped(&gantt.name);
    let (n_rows, minutes) = (gantt.rows.len(), gantt.seconds / 60.0);
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style>\
         <h1>{title}: {n_rows} tasks, {minutes:.1} minutes</h1><p>{keys}<label>find <input id=\"find\" placeholder=\"task or kind\"></label> \
         wheel: zoom (shift: rows only), drag: move, double click: reset</p><canvas id=\"chart\"></canvas><div id=\"tip\"></div>\
         <script id=\"data\" type=\"application/json\">{data}</script><script>{SCRIPT}</script></html>"
    )
}
