// The viewer of a trajectory: parts that load as they come into view, and tokens in colour.

const talk = document.querySelector('#text-view')
const near = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) more(entry.target)
}, {rootMargin: '1200px'})

async function more(section) {
  near.unobserve(section)
  const answer = await fetch(section.dataset.src, {headers: {accept: 'text/html'}})
  if (!answer.ok) { section.textContent = 'The rest could not be loaded. Load the page again.'; return }
  const part = new DOMParser().parseFromString(await answer.text(), 'text/html')
  section.replaceWith(...part.body.childNodes)
  watch()
}

function watch() {
  talk?.querySelectorAll('.later').forEach(each => near.observe(each))
}

function margin(element) {
  return parseFloat(getComputedStyle(element).scrollMarginTop) || 0
}

// A link to a turn that is not there yet loads what lies before it.
async function follow() {
  const id = location.hash.slice(1)
  if (!/^turn-\d+$/.test(id)) return
  for (let tries = 0; tries < 200 && !document.getElementById(id); tries++) {
    const section = talk?.querySelector('.later')
    if (!section) return
    await more(section)
  }
  const found = document.getElementById(id)
  if (!found) return
  // Pieces get their true height when they are near: what was above may grow once we are there.
  for (let tries = 0; tries < 20; tries++) {
    found.scrollIntoView()
    await new Promise(requestAnimationFrame)
    await new Promise(requestAnimationFrame)
    if (Math.abs(found.getBoundingClientRect().top - margin(found)) < 2) break
  }
  found.focus({preventScroll: true})
}
if (talk) {
  watch()
  follow()
  addEventListener('hashchange', follow)
}

// Tokens
const view = document.querySelector('#tokens-view')
const box = document.querySelector('#tokens')
const facts = document.querySelector('#token-facts')
const colour = document.querySelector('#colour')
const CHUNK = 2000
const chunks = []

document.querySelectorAll('[data-view]').forEach(button => button.addEventListener('click', () => {
  const isTokens = button.dataset.view === 'tokens'
  document.querySelectorAll('[data-view]').forEach(each => each.setAttribute('aria-pressed', String(each === button)))
  talk.hidden = isTokens
  view.hidden = !isTokens
  if (isTokens && !chunks.length) layOut()
}))

const seen = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) fill(entry.target)
}, {rootMargin: '1500px'})

function layOut() {
  JSON.parse(view.dataset.counts).forEach((count, thread) => {
    for (let begin = 0; begin < count; begin += CHUNK) {
      const chunk = document.createElement('div')
      chunk.className = 'chunk'
      chunk.style.minHeight = `${Math.min(CHUNK, count - begin) * .45}px`
      Object.assign(chunk.dataset, {thread, begin})
      box.append(chunk)
      chunks.push(chunk)
      seen.observe(chunk)
    }
  })
}

async function fill(chunk) {
  seen.unobserve(chunk)
  const {thread, begin} = chunk.dataset
  const about = new URLSearchParams({hub: view.dataset.hub, place: view.dataset.place, thread, from: begin, count: CHUNK})
  const answer = await fetch(`/tokens.json?${about}`, {headers: {accept: 'application/json'}})
  const data = await answer.json()
  if (!answer.ok) { chunk.textContent = data.error; return }
  const fragment = document.createDocumentFragment()
  let turn = Number(begin) ? null : -1
  data.ids.forEach((id, index) => {
    if (turn === null) turn = data.turns[index]
    if (data.turns[index] !== turn) {
      turn = data.turns[index]
      const mark = document.createElement('span')
      mark.className = 'turn-mark'
      mark.textContent = `turn ${turn + 1}` + (Number(thread) ? ` of thread ${Number(thread) + 1}` : '')
      fragment.append(mark)
    }
    const token = document.createElement('i')
    const text = data.texts?.[index]
    token.textContent = text ?? String(id)
    if (text === null || text === undefined) token.className = 'id'
    if (!data.mask[index]) token.classList.add('prompt')
    token.data = {id, text, mask: data.mask[index], logprob: data.logprobs[index], entropy: data.entropies[index], version: data.versions[index], turn: data.turns[index], at: data.begin + index}
    fragment.append(token)
  })
  chunk.replaceChildren(fragment)
  chunk.style.minHeight = ''
  paint(chunk)
}

const isDark = () => document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
const mixed = (rgb, share) => `rgba(${rgb}, ${(share * (isDark() ? .62 : .55)).toFixed(3)})`
const COLD = '42,120,214', HOT = '222,92,28', HUES = ['42,120,214', '222,92,28', '44,138,87', '138,79,192', '179,36,107', '15,138,148', '160,130,0']

function shade(data) {
  if (!data.mask && colour.value !== 'mask') return ''
  switch (colour.value) {
    case 'logprob': return data.logprob === null ? '' : mixed(HOT, Math.min(1, -data.logprob / 5))
    case 'surprise': return data.logprob === null ? '' : mixed(HOT, 1 - Math.exp(data.logprob))
    case 'entropy': return data.entropy === null ? '' : mixed(HOT, Math.min(1, data.entropy / 3))
    case 'version': return data.version < 0 ? '' : mixed(HUES[data.version % HUES.length], .7)
    case 'advantage': { const a = Number(view.dataset.advantage); return mixed(a >= 0 ? COLD : HOT, Math.min(1, Math.abs(a))) }
    default: return data.mask ? mixed(COLD, .6) : ''
  }
}

function paint(chunk) {
  for (const token of chunk.querySelectorAll('i')) token.style.background = shade(token.data)
}

const SCALES = {logprob: ['0', '−5 or less', HOT], surprise: ['0 %', '100 %', HOT], entropy: ['0', '3 nats or more', HOT], advantage: null, version: null, mask: null}
function scale() {
  const where = document.querySelector('#scale'), about = SCALES[colour.value]
  where.replaceChildren()
  if (!about) return
  const [from, to, rgb] = about
  const bar = document.createElement('canvas')
  bar.width = 120; bar.height = 12
  const context = bar.getContext('2d'), gradient = context.createLinearGradient(0, 0, 120, 0)
  gradient.addColorStop(0, mixed(rgb, 0)); gradient.addColorStop(1, mixed(rgb, 1))
  context.fillStyle = gradient
  context.fillRect(0, 0, 120, 12)
  where.append(`${from} `, bar, ` ${to}`)
}

function repaint() {
  chunks.forEach(paint)
  scale()
}
colour?.addEventListener('change', repaint)
document.addEventListener('theme', repaint)
if (colour) scale()

let on = null
function tell(token) {
  on?.classList.remove('on')
  on = token
  token.classList.add('on')
  const {id, text, mask, logprob, entropy, version, turn, at} = token.data
  const parts = [`#${at}`, `id ${id}`]
  if (text !== null && text !== undefined) parts.push(JSON.stringify(text))
  if (mask) parts.push(`log-probability ${logprob}`, `probability ${logprob === null ? '–' : Math.exp(logprob).toPrecision(4)}`, `version ${version}`)
  else parts.push('not sampled')
  if (mask && entropy !== null) parts.push(`entropy ${entropy} nats`)
  if (mask && view.dataset.advantage) parts.push(`advantage ${Number(view.dataset.advantage).toPrecision(4)}`)
  facts.value = parts.join('   ') + `   turn ${turn + 1}`
}
box?.addEventListener('pointerover', event => { if (event.target.data) tell(event.target) })
// A click chooses the token from which another version is asked.
box?.addEventListener('click', event => {
  const form = document.querySelector('#another form'), token = event.target.data
  if (!form || !token?.mask) return
  form.elements.token.value = token.at
  form.elements.thread.value = event.target.closest('.chunk').dataset.thread
})
box?.addEventListener('keydown', event => {
  const by = {ArrowRight: 1, ArrowLeft: -1}[event.key]
  if (!by) return
  event.preventDefault()
  let next = on
  do { next = next ? (by > 0 ? next.nextElementSibling ?? next.parentElement.nextElementSibling?.firstElementChild : next.previousElementSibling ?? next.parentElement.previousElementSibling?.lastElementChild) : box.querySelector('i') } while (next && !next.data)
  if (next) { tell(next); next.scrollIntoView({block: 'nearest'}) }
})
