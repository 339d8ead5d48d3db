// All charts of the console and of saved pages, drawn by uPlot: those that a page brings as data (`data-chart`), and the
// curves of runs (`#curves`), which are smoothed here and extended as updates are committed.

const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()
const colour = number => css(`--c${number % 8 + 1}`)
const FONT = '11px system-ui, sans-serif'
export const charts = new Map()

const FORMS = {
  number: value => {
    const size = Math.abs(value)
    if (size >= 1e6 || (size && size < 1e-3)) return value.toExponential(2)
    return size >= 1000 ? Math.round(value).toLocaleString('en') : String(+value.toPrecision(4))
  },
  percent: value => `${+(100 * value).toPrecision(3)} %`,
  signed: value => `${value > 0 ? '+' : ''}${FORMS.number(value)}`,
  passed: value => value >= 5400 ? `${(value / 3600).toFixed(1)} h` : value >= 90 ? `${(value / 60).toFixed(1)} min` : `${Math.round(value)} s`,
  clock: value => new Date(1000 * value).toLocaleString('sv'),
}
const say = (form, value) => value === null || value === undefined ? '–' : FORMS[form](value)

function make(tag, text, kind) {
  const made = document.createElement(tag)
  if (text !== undefined) made.textContent = text
  if (kind) made.className = kind
  return made
}

// The frame of a chart: its title, the values under the pointer, a note, the plot, the names of its lines.
function frame(figure, title, note) {
  const caption = make('figcaption'), output = make('output'), place = make('div', undefined, 'plot'), legend = make('ul', undefined, 'legend')
  caption.append(make('b', title), output)
  place.setAttribute('role', 'img')
  place.tabIndex = 0
  place.ariaLabel = title
  figure.classList.add('chart')
  figure.replaceChildren(caption, ...(note ? [make('p', note, 'note')] : []), place, legend)
  const chart = {figure, output, place, legend, title, plot: null, isSeen: false, spec: null}
  charts.set(figure, chart)
  place.addEventListener('keydown', event => step(chart, event))
  seen.observe(figure)
  return chart
}

// Charts are drawn when they come into view: a run has a hundred.
const seen = new IntersectionObserver(entries => {
  for (const {target, isIntersecting} of entries) {
    const chart = charts.get(target)
    if (!chart) continue
    chart.isSeen = isIntersecting
    if (isIntersecting && !chart.plot) chart.draw()
  }
}, {rootMargin: '300px'})

// The nearest point of a line that has a value: lines of several runs have none where only another run was measured.
function nearest(plot, series, index) {
  const values = plot.data[series]
  for (let far = 0; index !== null && far < values.length; far++) {
    if (values[index - far] != null) return index - far
    if (values[index + far] != null) return index + far
  }
  return index
}

const axis = (more = {}) => ({stroke: css('--faint'), font: FONT, grid: {stroke: css('--line'), width: 1}, ticks: {show: false}, ...more})

// `lines`: [{name, values, soft, dash, fill, colour, isQuiet}] over the same `x`; `soft` is drawn thick above the thin values.
function drawLines(chart, spec) {
  const {x, lines, form = 'number', xForm = 'number', span, isFixed, marks = [], shades = []} = spec
  const series = [{}], data = [x], bands = []
  for (const line of lines) {
    const stroke = line.colour, count = line.values.filter(value => value != null).length
    if (line.soft && !line.fill) {
      data.push(line.values)
      series.push({stroke: `${stroke}55`, width: 1, points: {show: false}, spanGaps: true, auto: false})
    }
    line.at = data.push(line.soft ?? line.values) - 1
    series.push({stroke: line.isBand ? 'transparent' : stroke, width: 1.8, dash: line.dash, fill: line.fill, points: {show: count === 1, size: 6}, spanGaps: true})
  }
  const low = lines.find(line => line.isBand === 'low'), high = lines.find(line => line.isBand === 'high')
  if (low && high) bands.push({series: [high.at, low.at], fill: `${css('--c1')}2e`})
  const y = {range: (plot, least, most) => {
    if (least === null || least === 0 && most === 0) return [0, 1]
    return span && (isFixed || least >= span[0] && most <= span[1]) ? span : uPlot.rangeNum(lines.some(line => line.fill) ? 0 : least, most, .1, true)
  }}
  return open(chart, {
    scales: {x: {time: xForm === 'clock'}, y}, series, bands, hooks: marks.length || shades.length ? {drawClear: [plot => annotate(plot, marks, shades)]} : {},
    padding: [marks.length ? 18 : null, null, null, null],
    axes: [axis({grid: {show: false}, size: 28, space: 60, values: (plot, marks) => marks.map(mark => xForm === 'clock' ? clockMark(mark, x) : FORMS[xForm](mark))}),
      axis({size: 52, values: (plot, marks) => marks.map(mark => FORMS[form](mark))})],
  }, data)
}

// Vertical lines with a word above them, and shaded times with a word inside.
function annotate(plot, marks, shades) {
  const {ctx, bbox} = plot, size = devicePixelRatio, across = at => plot.valToPos(at, 'x', true)
  ctx.save()
  Object.assign(ctx, {font: `${11 * size}px system-ui, sans-serif`, strokeStyle: css('--faint'), lineWidth: size})
  for (const {from, to, label} of shades) {
    ctx.fillStyle = css('--wash')
    ctx.fillRect(across(from), bbox.top, across(to) - across(from), bbox.height)
    ctx.fillStyle = css('--faint')
    ctx.fillText(label, across(from) + 6 * size, bbox.top + bbox.height - 6 * size)
  }
  ctx.setLineDash([3 * size, 3 * size])
  ctx.fillStyle = css('--ink')
  for (const {at, label} of marks) {
    ctx.beginPath()
    ctx.moveTo(across(at), bbox.top)
    ctx.lineTo(across(at), bbox.top + bbox.height)
    ctx.stroke()
    const isLate = across(at) > bbox.left + .85 * bbox.width
    ctx.textAlign = isLate ? 'right' : 'left'
    ctx.fillText(label, across(at) + (isLate ? 0 : -2 * size), bbox.top - 6 * size)
  }
  ctx.restore()
}

// The hour where all is within two days, else the day.
const clockMark = (mark, x) => FORMS.clock(mark).slice(...(x.at(-1) - x[0] < 172800 ? [11, 16] : [5, 10]))

// A bar a row, from zero.
function drawBars(chart, {names, values, form = 'number'}) {
  const places = names.map((_, index) => index)
  return open(chart, {
    height: 24 * names.length + 40,
    scales: {x: {time: false, ori: 1, dir: -1, range: [-.6, names.length - .4]}, y: {ori: 0, range: (plot, low, high) => [Math.min(0, low), Math.max(0, high) || 1]}},
    series: [{}, {stroke: css('--c1'), fill: css('--c1'), paths: uPlot.paths.bars({size: [.7, 22]}), points: {show: false}}],
    axes: [axis({side: 3, size: 190, grid: {show: false}, splits: () => places, values: () => names}), axis({side: 2, size: 28, space: 70, values: (plot, marks) => marks.map(mark => FORMS[form](mark))})],
  }, [places, values])
}

// Trials on parallel axes: a line is a trial, better ones have a stronger colour; each axis has its own scale.
function drawParallel(chart, {axes, trials}) {
  const places = axes.map((_, index) => index), last = trials.length - 1
  const shade = rank => `${css('--c1')}${Math.round(255 * (.15 + .85 * rank / Math.max(1, last))).toString(16).padStart(2, '0')}`
  const scales = plot => {
    const {ctx} = plot
    ctx.save()
    Object.assign(ctx, {font: `${11 * devicePixelRatio}px system-ui, sans-serif`, textAlign: 'right', textBaseline: 'middle', fillStyle: css('--soft')})
    axes.forEach(({ticks}, index) => {
      const left = plot.valToPos(index, 'x', true)
      Object.assign(ctx, {strokeStyle: css('--faint'), lineWidth: devicePixelRatio})
      ctx.beginPath()
      ctx.moveTo(left, plot.valToPos(0, 'y', true))
      ctx.lineTo(left, plot.valToPos(1, 'y', true))
      ctx.stroke()
      for (const [at, word] of ticks) {
        const where = [word, left - 6 * devicePixelRatio, plot.valToPos(at, 'y', true)]
        Object.assign(ctx, {strokeStyle: css('--page'), lineWidth: 3 * devicePixelRatio})
        ctx.strokeText(...where)
        ctx.fillText(...where)
      }
    })
    ctx.restore()
  }
  return open(chart, {
    height: 380, padding: [12, 60, 0, 90], focus: {alpha: .12},
    cursor: {focus: {prox: 24}, drag: {x: false}},
    scales: {x: {time: false, range: [0, axes.length - 1]}, y: {range: [-.02, 1.02]}},
    series: [{}, ...trials.map((trial, rank) => ({label: trial.name, stroke: shade(rank), width: rank === last ? 3.5 : 1.6, paths: uPlot.paths.spline(), points: {show: false}}))],
    axes: [axis({grid: {show: false}, size: 30, splits: () => places, values: () => axes.map(each => each.name)}), {show: false}],
    hooks: {draw: [scales], setSeries: [(plot, index) => { chart.output.value = index ? trials[index - 1].name : '' }]},
  }, [places, ...trials.map(trial => trial.places)])
}

const KINDS = {lines: drawLines, bars: drawBars, parallel: drawParallel}

function open(chart, options, data) {
  chart.plot?.destroy()
  const isLines = chart.spec.kind === 'lines'
  chart.plot = new uPlot({
    width: chart.place.clientWidth || 320, height: 170, legend: {show: false}, ...options,
    hooks: {setCursor: isLines ? [() => tell(chart)] : [], ...options.hooks},
    cursor: {y: false, points: {size: 6}, ...(isLines ? {sync: {key: 'page', scales: ['x', null]}, dataIdx: nearest} : {}), ...options.cursor},
  }, data, chart.place)
  resized.observe(chart.place)
  return chart.plot
}

const resized = new ResizeObserver(entries => {
  for (const {target, contentRect} of entries) {
    const chart = charts.get(target.closest('figure'))
    if (chart?.plot && contentRect.width && chart.plot.width !== Math.floor(contentRect.width)) chart.plot.setSize({width: Math.floor(contentRect.width), height: chart.plot.height})
  }
})

// Draws `spec` in the chart's frame; its text for people who do not see it ends with the last values.
function show(chart, spec) {
  chart.spec = spec
  KINDS[spec.kind](chart, spec)
  if (spec.kind !== 'lines') { chart.place.ariaLabel = `${chart.title}: ${(spec.names ?? spec.axes.map(each => each.name)).join(', ')}`; return }
  const named = spec.lines.filter(line => !line.isQuiet)
  chart.legend.replaceChildren(...(named.length < 2 || spec.isNamedAbove ? [] : named.map(line => {
    const item = make('li', line.name)
    item.style.setProperty('--c', line.colour)
    return item
  })))
  chart.figure.dataset.lines = named.length
  tell(chart)
  chart.place.ariaLabel = `${chart.title}: ${named.map(line => `${line.name} ends at ${say(spec.form ?? 'number', last(line))}`).join(', ')}`
}

const last = line => (line.fill ? line.values : line.soft ?? line.values).findLast(value => value != null)

function tell(chart) {
  const {spec, plot, output} = chart, index = plot?.cursor.idx ?? null
  const values = spec.lines.filter(line => !line.isQuiet).map(line => say(spec.form ?? 'number', index === null ? last(line) : line.values[nearest(plot, line.at, index)]))
  output.value = (index === null ? '' : `${say(spec.xForm ?? 'number', spec.x[index])}:  `) + values.join('  ')
}

function step(chart, event) {
  const by = {ArrowLeft: -1, ArrowRight: 1}[event.key]
  if (!by || !chart.plot) return
  event.preventDefault()
  const x = chart.plot.data[0], next = Math.max(0, Math.min(x.length - 1, (chart.plot.cursor.idx ?? x.length) + by))
  chart.plot.setCursor({left: chart.plot.valToPos(x[next], 'x'), top: 10})
}

// A small curve without axes, in the cell of a table.
function drawSpark(chart) {
  const axes = [{show: false}, {show: false}]
  chart.plot = new uPlot({width: 120, height: 28, padding: [3, 3, 3, 3], legend: {show: false}, cursor: {show: false}, scales: {x: {time: false}}, axes,
    series: [{}, {stroke: css('--accent'), width: 1.5, points: {show: false}}]}, [chart.values.map((_, index) => index), chart.values], chart.figure)
}

// Charts that a page brings; after news it may bring others.
function adopt() {
  for (const figure of document.querySelectorAll('[data-spark]')) {
    if (charts.has(figure)) continue
    const chart = {figure, values: JSON.parse(figure.dataset.spark), draw: () => drawSpark(chart)}
    charts.set(figure, chart)
    seen.observe(figure)
  }
  for (const figure of charts.keys()) if (!figure.isConnected) { charts.get(figure).plot?.destroy(); charts.delete(figure) }
  for (const figure of document.querySelectorAll('figure[data-chart]')) {
    if (charts.has(figure)) continue
    const spec = JSON.parse(figure.dataset.chart), chart = frame(figure, spec.title, spec.note)
    chart.draw = () => {
      let number = 0
      for (const line of spec.lines ?? []) line.colour = line.isLimit ? css('--hot') : colour(line.isQuiet ? 0 : number++)
      show(chart, spec)
    }
  }
}
new MutationObserver(adopt).observe(document.body, {childList: true, subtree: true})
adopt()

function redraw() {
  for (const chart of charts.values()) { chart.plot?.destroy(); chart.plot = null; if (chart.isSeen) chart.draw() }
}
document.addEventListener('theme', redraw)
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw)

// The curves of runs
const curves = document.querySelector('#curves')
if (curves) await drawCurves(curves)

async function drawCurves(place) {
  const names = JSON.parse(place.dataset.runs), runs = new Map(), panels = new Map(), busy = new Set()
  const along = document.querySelector('#along'), smooth = document.querySelector('#smooth'), wanted = document.querySelector('#metric-filter')

  async function load(run, after = 0) {
    const saved = document.querySelector('#record')
    if (saved) return JSON.parse(saved.textContent)
    const answer = await fetch(`/runs/${encodeURIComponent(run)}/metrics.json${after ? `?after=${after}` : ''}`, {headers: {accept: 'application/json'}})
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

  const xs = data => along.value === 'time' ? data.time.map(value => value - data.started) : along.value === 'tokens' ? data.tokens : data.step

  // A moving mean whose weights fall by `weight` a value, corrected at its start.
  function smoothed(ys, weight) {
    let sum = 0, norm = 0
    return ys.map(y => {
      if (y == null) return null
      sum = weight * sum + (1 - weight) * y
      norm = weight * norm + (1 - weight)
      return sum / norm
    })
  }

  // What a panel shows: of one run all its metrics, beside others one of them.
  function linesOf(panel) {
    const tables = [], lines = []
    names.forEach((run, number) => [...panel.labels].forEach(([label, name], order) => {
      const data = runs.get(run), ys = data?.values[name]
      if (!ys) return
      const x = xs(data), there = ys.map((_, index) => index).filter(index => x[index] != null && ys[index] != null)
      if (!there.length) return
      tables.push([there.map(index => x[index]), there.map(index => ys[index])])
      lines.push({name: names.length > 1 ? run : label, colour: colour(names.length > 1 ? number : order)})
    }))
    if (!lines.length) return null
    const [x, ...columns] = uPlot.join(tables), weight = Number(smooth.value)
    lines.forEach((line, index) => { line.values = columns[index]; if (weight && !panel.isStacked) line.soft = smoothed(columns[index], weight) })
    return {x, lines: panel.isStacked && names.length === 1 ? stacked(lines) : lines}
  }

  // Each line upon those before it, the highest drawn first; its own values are told.
  function stacked(lines) {
    let below = Array(lines[0].values.length).fill(0)
    for (const line of lines) {
      below = line.soft = below.map((sum, index) => sum + (line.values[index] ?? 0))
      line.fill = `${line.colour}88`
    }
    return lines.reverse()
  }

  function draw(chart) {
    const found = linesOf(chart.panel)
    chart.figure.hidden = !found || !isWanted(chart)
    if (found) show(chart, {kind: 'lines', ...found, form: chart.panel.isShare ? 'percent' : 'number', xForm: along.value === 'time' ? 'passed' : 'number', span: chart.panel.span, isNamedAbove: names.length > 1})
  }

  function isWanted({title, panel}) {
    const text = wanted.value.trim().toLowerCase()
    return !text || [title, ...panel.labels.keys(), ...panel.labels.values()].some(each => each.toLowerCase().includes(text))
  }

  // The place of a section: headed, and folded where it is long.
  function section(panel) {
    const known = [...place.children].find(each => each.dataset.section === panel.section)
    if (known) return known.querySelector('.curves')
    const made = make(panel.isFolded ? 'details' : 'section'), grid = make('div', undefined, 'curves')
    made.dataset.section = panel.section
    made.append(make(panel.isFolded ? 'summary' : 'h3', panel.section), grid)
    const folded = panel.isFolded ? null : [...place.children].find(each => each.matches('details'))
    place.insertBefore(made, folded ?? null)
    return grid
  }

  function arrange() {
    const every = [...runs.values()].flatMap(data => data.panels), note = document.querySelector('#curves-note')
    if (!every.length) { if (note) note.textContent = 'No update is on record yet.'; return }
    note?.remove()
    for (const panel of every) for (const [label, name] of Object.entries(panel.names)) {
      const isAlone = names.length > 1 && label.toLowerCase() !== panel.title.toLowerCase()
      const title = isAlone ? `${panel.title}: ${label}` : panel.title, key = `${panel.section}/${title}`
      if (!panels.has(key)) {
        const figure = make('figure')
        figure.dataset.key = key
        section(panel).append(figure)
        const chart = frame(figure, title, panel.note || ' ')
        chart.panel = {...panel, labels: new Map()}
        chart.draw = () => draw(chart)
        panels.set(key, chart)
      }
      panels.get(key).panel.labels.set(label, name)
    }
    for (const each of place.children) {
      const shown = [...each.querySelectorAll('figure')].filter(figure => !(figure.hidden = !isWanted(charts.get(figure))))
      each.hidden = !shown.length
      if (each.matches('details') && wanted.value.trim()) each.open = true
    }
  }

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

  document.addEventListener('news', ({detail}) => { if (detail.kind === 'metrics' || detail.kind.startsWith('run.')) extend(detail.subject) })
  const smoothing = () => { document.querySelector('#smooth-value').value = smooth.value }
  for (const control of [along, smooth]) control.addEventListener('input', () => { smoothing(); redraw() })
  wanted.addEventListener('input', () => { arrange(); redraw() })
  wanted.addEventListener('keydown', event => { if (event.key === 'Enter') event.preventDefault() })
  smoothing()
  for (const run of names) {
    try { runs.set(run, await load(run)) } catch (error) { place.before(make('p', `${run}: ${error.message}`, 'message')) }
  }
  arrange()
  place.removeAttribute('aria-busy')
}
