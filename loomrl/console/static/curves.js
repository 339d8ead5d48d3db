// Curves of runs: drawn from columns, smoothed here, extended as updates are committed.

const place = document.querySelector('#curves')
const names = JSON.parse(place.dataset.runs)
const along = document.querySelector('#along')
const smooth = document.querySelector('#smooth')
const wanted = document.querySelector('#metric-filter')
const HIGH = 170, LEFT = 46, RIGHT = 8, TOP = 8, BOTTOM = 18
const runs = new Map()
const charts = new Map()
let at = null

const url = (run, after) => `/runs/${encodeURIComponent(run)}/metrics.json${after ? `?after=${after}` : ''}`

async function load(run, after = 0) {
  const answer = await fetch(url(run, after), {headers: {accept: 'application/json'}})
  if (!answer.ok) throw new Error((await answer.json()).error)
  return answer.json()
}

function join(old, more) {
  const before = old.step.length, count = more.step.length
  for (const name of ['step', 'time', 'tokens']) old[name].push(...more[name])
  for (const name of new Set([...Object.keys(old.values), ...Object.keys(more.values)])) {
    const column = old.values[name] ??= Array(before).fill(null)
    column.push(...(more.values[name] ?? Array(count).fill(null)))
  }
  old.panels.push(...more.panels)
  old.last = more.last || old.last
}

function xs(data) {
  if (along.value === 'time') return data.time.map(value => value - data.started)
  return along.value === 'tokens' ? data.tokens : data.step
}

// A moving mean whose weights fall by `weight` a value, corrected at its start.
function smoothed(ys, weight) {
  let sum = 0, norm = 0
  return ys.map(y => {
    if (y === null) return null
    sum = weight * sum + (1 - weight) * y
    norm = weight * norm + (1 - weight)
    return sum / norm
  })
}

const said = (value, isShare = false) => {
  if (value === null || value === undefined) return '–'
  if (isShare) return `${+(100 * value).toPrecision(3)} %`
  const size = Math.abs(value)
  if (size >= 1e6 || (size && size < 1e-3)) return value.toExponential(2)
  return size >= 1000 ? Math.round(value).toLocaleString('en') : String(+value.toPrecision(4))
}

function saidX(value) {
  if (along.value !== 'time') return said(value)
  const minutes = value / 60
  return minutes >= 90 ? `${(minutes / 60).toFixed(1)} h` : minutes >= 1.5 ? `${minutes.toFixed(1)} min` : `${Math.round(value)} s`
}

function element(name, attributes = {}, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  if (text !== undefined) made.textContent = text
  return made
}

function ticks(low, high) {
  if (!(high > low)) { const half = Math.abs(low) * .05 || .5; low -= half; high += half }
  const rough = (high - low) / 3, power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 2.5, 5, 10].map(each => each * power).find(each => each >= rough)
  const found = []
  for (let tick = Math.floor(low / step) * step; tick <= Math.ceil(high / step - 1e-9) * step + step / 2; tick += step) found.push(+tick.toPrecision(12))
  return found
}

// A chart of a panel: of one run all its metrics, beside others one of them.
function chart(key, panel, title) {
  const figure = document.createElement('figure')
  figure.className = 'chart'
  figure.dataset.key = key
  const caption = document.createElement('figcaption')
  const name = document.createElement('b')
  name.textContent = title
  const output = document.createElement('output')
  caption.append(name, output)
  const note = document.createElement('p')
  note.className = 'note'
  note.textContent = panel.note
  const svg = element('svg', {role: 'img', tabindex: '0', 'aria-label': `${title}; arrow keys show its values`})
  const legend = document.createElement('ul')
  legend.className = 'legend'
  figure.append(caption, note, svg, legend)
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect()
    point(event.clientX - box.left, figure)
  })
  svg.addEventListener('pointerleave', () => { at = null; crosses() })
  svg.addEventListener('keydown', event => {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key]
    if (!by) return
    event.preventDefault()
    const drawn = charts.get(key).drawn
    if (!drawn) return
    const points = drawn.lines[0]?.points ?? []
    const now = at === null ? points.length - 1 : nearest(points, at)
    at = points[Math.max(0, Math.min(points.length - 1, now + by))]?.[0] ?? null
    crosses()
  })
  charts.set(key, {figure, svg, output, legend, title, panel, labels: new Map(), drawn: null, isSeen: false})
  seen.observe(figure)
  return figure
}

const seen = new IntersectionObserver(entries => {
  for (const {target, isIntersecting} of entries) {
    const found = charts.get(target.dataset.key)
    found.isSeen = isIntersecting
    if (isIntersecting && !found.drawn) draw(target.dataset.key)
  }
}, {rootMargin: '300px'})

function draw(key) {
  const found = charts.get(key), weight = Number(smooth.value), {isShare, span} = found.panel
  const say = value => said(value, isShare)
  const lines = []
  names.forEach((run, number) => [...found.labels].forEach(([label, name], order) => {
    const data = runs.get(run), ys = data?.values[name]
    if (!ys) return
    const x = xs(data), soft = smoothed(ys, weight)
    const points = [], raw = []
    ys.forEach((y, index) => {
      if (y === null || x[index] === null || x[index] === undefined) return
      raw.push([x[index], y])
      points.push([x[index], soft[index], y])
    })
    const color = names.length > 1 ? number : order
    if (points.length) lines.push({kind: `c${color % 8 + 1}`, run, label, points, raw})
  }))
  const svg = found.svg
  svg.replaceChildren()
  found.drawn = null
  found.figure.hidden = !lines.length || !isWanted(found)
  if (!lines.length) return
  const everyX = lines.flatMap(line => [line.points[0][0], line.points.at(-1)[0]])
  const left = Math.min(...everyX), right = Math.max(...everyX)
  let low = Infinity, high = -Infinity
  for (const line of lines) for (const [, mean, y] of line.points) {
    const value = weight ? mean : y
    if (value < low) low = value
    if (value > high) high = value
  }
  if (span && low >= span[0] && high <= span[1]) [low, high] = span
  const marks = ticks(low, high), bottom = marks[0], top = marks.at(-1)
  const WIDE = svg.clientWidth || 320
  svg.setAttribute('viewBox', `0 0 ${WIDE} ${HIGH}`)
  const X = value => LEFT + (WIDE - LEFT - RIGHT) * (right > left ? (value - left) / (right - left) : .5)
  const Y = value => TOP + (HIGH - TOP - BOTTOM) * (top - Math.min(top, Math.max(bottom, value))) / (top - bottom)
  found.drawn = {lines, X, left, right, WIDE}
  for (const mark of marks) {
    svg.append(element('path', {class: 'grid', d: `M${LEFT} ${Y(mark)}H${WIDE - RIGHT}`}))
    svg.append(element('text', {x: LEFT - 6, y: Y(mark) + 3.5, 'text-anchor': 'end'}, say(mark)))
  }
  svg.append(element('text', {x: LEFT, y: HIGH - 3}, saidX(left)))
  if (right > left) svg.append(element('text', {x: WIDE - RIGHT, y: HIGH - 3, 'text-anchor': 'end'}, saidX(right)))
  for (const line of lines) {
    const path = points => 'M' + points.map(([x, y]) => `${X(x).toFixed(1)} ${Y(y).toFixed(1)}`).join('L') + (points.length === 1 ? 'h0' : '')
    if (weight) svg.append(element('path', {class: `raw ${line.kind}`, d: path(line.raw)}))
    svg.append(element('path', {class: `smooth ${line.kind}`, d: path(weight ? line.points : line.raw), 'stroke-linecap': 'round'}))
  }
  const ends = lines.map(line => say(line.points.at(-1)[weight ? 1 : 2]))
  found.output.value = ends.join('  ')
  const told = names.length > 1 ? line => line.run : line => line.label
  svg.setAttribute('aria-label', `${found.title}: ${lines.map((line, index) => `${told(line)} ends at ${ends[index]}`).join(', ')}`)
  found.legend.replaceChildren(...(names.length > 1 || lines.length < 2 ? [] : lines.map(line => {
    const item = document.createElement('li')
    item.className = line.kind
    item.textContent = line.label
    return item
  })))
}

function nearest(points, x) {
  let low = 0, high = points.length - 1
  while (high - low > 1) { const middle = (low + high) >> 1; if (points[middle][0] < x) low = middle; else high = middle }
  return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? low : high
}

function point(x, figure) {
  const {drawn} = charts.get(figure.dataset.key)
  if (!drawn) return
  const share = Math.min(1, Math.max(0, (x - LEFT) / (drawn.WIDE - LEFT - RIGHT)))
  at = drawn.left + share * (drawn.right - drawn.left)
  crosses()
}

// The same place in every chart in view.
function crosses() {
  const weight = Number(smooth.value)
  for (const {svg, output, drawn, isSeen, panel} of charts.values()) {
    if (!drawn || !isSeen) continue
    svg.querySelectorAll('.cross').forEach(each => each.remove())
    const values = drawn.lines.map(line => line.points[at === null ? line.points.length - 1 : nearest(line.points, at)])
    output.value = (at === null ? '' : `${saidX(values[0][0])}:  `) + values.map(([, mean, y]) => said(at === null && weight ? mean : y, panel.isShare)).join('  ')
    if (at !== null) svg.append(element('path', {class: 'cross', d: `M${drawn.X(values[0][0]).toFixed(1)} ${TOP}V${HIGH - BOTTOM}`}))
  }
}

const isWanted = ({title, labels}) => {
  const text = wanted.value.trim().toLowerCase()
  return !text || [title, ...labels.keys(), ...labels.values()].some(each => each.toLowerCase().includes(text))
}

// The place of a section: headed, and folded where the report folds it too.
function section(panel) {
  const known = [...place.children].find(each => each.dataset.section === panel.section)
  if (known) return known.querySelector('.curves')
  const made = document.createElement(panel.isFolded ? 'details' : 'section')
  made.dataset.section = panel.section
  const head = document.createElement(panel.isFolded ? 'summary' : 'h3')
  head.textContent = panel.section
  const grid = document.createElement('div')
  grid.className = 'curves'
  made.append(head, grid)
  const folded = panel.isFolded ? null : [...place.children].find(each => each.matches('details'))
  place.insertBefore(made, folded ?? null)
  return grid
}

function arrange() {
  const panels = [...runs.values()].flatMap(data => data.panels)
  const note = document.querySelector('#curves-note')
  if (!panels.length) { if (note) note.textContent = 'No update is on record yet.'; return }
  note?.remove()
  for (const panel of panels) for (const [label, name] of Object.entries(panel.names)) {
    const isAlone = names.length > 1 && label.toLowerCase() !== panel.title.toLowerCase()
    const title = isAlone ? `${panel.title}: ${label}` : panel.title, key = `${panel.section}/${title}`
    if (!charts.has(key)) section(panel).append(chart(key, panel, title))
    charts.get(key).labels.set(label, name)
  }
  for (const each of place.children) {
    const shown = [...each.querySelectorAll('.chart')].filter(figure => {
      const found = charts.get(figure.dataset.key)
      return !(figure.hidden = !isWanted(found))
    })
    each.hidden = !shown.length
    if (each.matches('details') && wanted.value.trim()) each.open = true
  }
}

function redraw() {
  for (const [key, found] of charts) { found.drawn = null; if (found.isSeen) draw(key) }
}

const busy = new Set()
async function extend(run) {
  const data = runs.get(run)
  if (!data || busy.has(run)) return
  busy.add(run)
  try {
    const more = data.last ? await load(run, data.last) : await load(run)
    if (!data.last) runs.set(run, more)
    else if (more.step.length) join(data, more)
    else return
    arrange()
    redraw()
  } catch { /* the next news brings it */ } finally { busy.delete(run) }
}

let width = innerWidth
addEventListener('resize', () => { if (innerWidth !== width) { width = innerWidth; redraw() } })
document.addEventListener('news', ({detail}) => { if (detail.kind === 'metrics' || detail.kind.startsWith('run.')) extend(detail.subject) })
for (const control of [along, smooth]) control.addEventListener('input', () => {
  document.querySelector('#smooth-value').value = smooth.value
  redraw()
})
wanted.addEventListener('input', () => { arrange(); redraw() })
wanted.addEventListener('keydown', event => { if (event.key === 'Enter') event.preventDefault() })
document.querySelector('#smooth-value').value = smooth.value

for (const run of names) {
  try { runs.set(run, await load(run)) } catch (error) {
    const note = document.createElement('p')
    note.className = 'message'
    note.textContent = `${run}: ${error.message}`
    place.before(note)
  }
}
arrange()
place.removeAttribute('aria-busy')
