// What every page has: light or dark, keyboard, times that grow, and news of what was committed.

const root = document.documentElement
const stored = localStorage.getItem('theme')
if (stored) root.dataset.theme = stored

document.querySelector('#theme')?.addEventListener('click', () => {
  const isDark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
  root.dataset.theme = isDark ? 'light' : 'dark'
  localStorage.setItem('theme', root.dataset.theme)
  document.dispatchEvent(new Event('theme'))
})

const help = document.querySelector('#help')
document.querySelector('#keys')?.addEventListener('click', () => help.showModal())

const menuButton = document.querySelector('.menu-button')
menuButton?.addEventListener('click', () => {
  const isOpen = document.querySelector('#menu').classList.toggle('is-open')
  menuButton.setAttribute('aria-expanded', String(isOpen))
})

// Keyboard: g and a letter goes to a page; j and k walk through rows or turns.
const PAGES = {r: '/runs', t: '/trajectories', p: '/policies', e: '/endpoints', f: '/feedback', a: '/audit', s: '/sweeps'}
let isGoing = false
document.addEventListener('keydown', event => {
  const isTyping = event.target.closest('input, textarea, select, [contenteditable]')
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return
  if (isGoing && PAGES[event.key]) { location.href = PAGES[event.key]; return }
  isGoing = event.key === 'g'
  if (event.key === '?' && help) help.showModal()
  if (event.key === '/') {
    const search = document.querySelector('input[type=search]')
    if (search) { search.focus(); event.preventDefault() }
  }
  if (event.key === 'j' || event.key === 'k') walk(event.key === 'j' ? 1 : -1)
  if (event.key === 'Enter' && event.target === document.body) document.querySelector('tr.on a')?.click()
})

function walk(by) {
  const places = [...document.querySelectorAll('.rows tbody tr, .turn')]
  if (!places.length) return
  const at = places.findIndex(place => place.classList.contains('on'))
  places[at]?.classList.remove('on')
  const next = places[Math.min(places.length - 1, Math.max(0, at + by))]
  next.classList.add('on')
  next.scrollIntoView({block: next.matches('.turn') ? 'start' : 'nearest'})
  const link = next.querySelector('a')
  link?.focus({preventScroll: true})
}

document.addEventListener('click', event => {
  const row = event.target.closest('tr[data-href]')
  if (!row || event.target.closest('a, button, input, label, summary') || getSelection().toString()) return
  location.href = row.dataset.href
})

// A slider says where it is.
document.addEventListener('input', event => {
  if (event.target.matches('[data-told]')) event.target.parentElement.querySelector('output').textContent = event.target.value
})

const UNITS = [[31536000, 'y'], [86400, 'd'], [3600, 'h'], [60, 'min']]
function grow() {
  for (const each of document.querySelectorAll('time[data-at]')) {
    const passed = Date.now() / 1000 - Number(each.dataset.at)
    const unit = UNITS.find(([size]) => passed >= size)
    each.textContent = unit ? `${Math.floor(passed / unit[0])} ${unit[1]} ago` : 'just now'
  }
}
setInterval(grow, 30000)

// On a narrow screen every value is shown with the name of its column.
function nameValues() {
  for (const table of document.querySelectorAll('table.rows')) {
    const heads = [...(table.tHead?.rows[0]?.cells ?? [])].map(cell => cell.innerText.replace(/[↓↑]/g, '').trim())
    for (const row of [...table.tBodies].flatMap(body => [...body.rows])) for (const cell of row.cells) {
      const name = heads[cell.cellIndex]
      if (name && cell.tagName === 'TD' && !cell.querySelector('button, input, details')) cell.dataset.name = name
    }
  }
}
nameValues()

// News: parts of the page marked data-fresh are replaced by what the server shows now.
const main = document.querySelector('main[data-live]')
const sign = document.querySelector('#live')
if (main) {
  const about = new URLSearchParams()
  for (const kind of main.dataset.live.split(',')) if (kind) about.append('kind', kind)
  if (main.dataset.subject) about.append('subject', main.dataset.subject)
  if (main.dataset.after) about.append('after', main.dataset.after)
  const source = new EventSource(`/live?${about}`)
  let wasAway = false
  source.onopen = () => {
    show('live', false)
    if (wasAway) refresh()
    wasAway = false
  }
  source.onerror = () => { wasAway = true; show('away', true) }
  source.addEventListener('news', event => {
    const news = JSON.parse(event.data)
    document.dispatchEvent(new CustomEvent('news', {detail: news}))
    if ('notice' in main.dataset) refreshOrTell()
    else refresh()
  })
  addEventListener('pagehide', () => source.close())
}

function show(text, isAway) {
  sign.textContent = text
  sign.classList.toggle('away', isAway)
}

function refreshOrTell() {
  if (scrollY < 200 && !document.querySelector('tr.on')) refresh()
  else show('new ones above', false)
}

let due = null, last = 0
function refresh() {
  if (due) return
  due = setTimeout(replace, Math.max(0, 1500 - (Date.now() - last)))
}

async function replace() {
  due = null
  last = Date.now()
  try {
    const answer = await fetch(location.href, {headers: {accept: 'text/html'}})
    if (!answer.ok) { if (answer.status === 401) show('signed out', true); return }
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html')
    for (const old of document.querySelectorAll('[data-fresh]')) {
      const young = fresh.getElementById(old.id)
      // What came last is compared, not what stands there: charts were drawn into it.
      if (!young || young.innerHTML === (old.cameLast ?? old.innerHTML) || old.contains(document.activeElement)) continue
      old.cameLast = young.innerHTML
      const ticked = new Set([...old.querySelectorAll('input:checked')].map(box => box.value))
      old.replaceChildren(...young.childNodes)
      for (const box of old.querySelectorAll('input[type=checkbox]')) box.checked = ticked.has(box.value)
    }
    nameValues()
    complete()
  } catch { show('away', true) }
}

// Parts that take longer to make come after the page, and again after news.
function complete() {
  for (const place of document.querySelectorAll('[data-load]')) load(place)
}

function load(place) {
  fetch(place.dataset.load, {headers: {accept: 'text/html'}})
    .then(async answer => answer.ok ? answer.text() : Promise.reject())
    .then(text => place.replaceChildren(...new DOMParser().parseFromString(text, 'text/html').body.childNodes))
    .catch(() => { place.textContent = 'This part could not be loaded. Load the page again.' })
}
complete()

// A rare filter looks further by itself, until the page is full, the end is reached, or a minute has passed.
async function further() {
  const begun = Date.now()
  let link
  while ((link = document.querySelector('#further')) && Date.now() - begun < 60000) {
    const rows = document.querySelector('#list tbody')
    if (rows && rows.rows.length >= 40) return
    const answer = await fetch(link.href, {headers: {accept: 'text/html'}})
    if (!answer.ok) return
    const more = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('#list')
    const young = more.querySelector('tbody')
    if (rows && young) rows.append(...young.rows)
    nameValues()
    if (rows) {
      const note = more.querySelector('#short')
      if (note) document.querySelector('#short').replaceWith(note)
      else document.querySelector('#short').remove()
    } else document.querySelector('#list').replaceChildren(...more.childNodes)
  }
}
further().catch(() => {})
