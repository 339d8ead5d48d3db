// The film of an episode and the charts of its steps: both show the same step. Where pictures cannot be taken apart
// (ImageDecoder is for loopback and HTTPS alone), the film plays by itself.

import {charts} from './charts.js'

const film = document.querySelector('.film')
if (film && 'ImageDecoder' in window) await play(film)

async function play(film) {
  const image = film.querySelector('img'), bar = film.querySelector('.film-bar'), [button, slider, output] = bar.children
  const steps = JSON.parse(film.dataset.frames), delays = JSON.parse(film.dataset.delays)
  const starts = delays.map((_, index) => delays.slice(0, index).reduce((sum, delay) => sum + delay, 0))
  const whole = starts.at(-1) + delays.at(-1), figures = document.querySelectorAll('#film figure')
  const answer = await fetch(film.dataset.src)
  if (!answer.ok) return
  const shots = await shotsOf(await answer.arrayBuffer())
  const canvas = document.createElement('canvas'), context = canvas.getContext('2d')
  Object.assign(canvas, {width: shots[0].picture.width, height: shots[0].picture.height})
  canvas.setAttribute('role', 'img')
  canvas.ariaLabel = image.alt
  image.replaceWith(canvas)
  bar.hidden = false

  let time = 0, before = null

  function show(step) {
    const start = starts[steps.findLastIndex(at => at <= step)]
    context.drawImage(shots.findLast(shot => shot.at <= start + 1).picture, 0, 0)
    slider.value = step
    output.value = `step ${step} of ${steps.at(-1)}`
    for (const figure of figures) {
      const plot = charts.get(figure)?.plot
      plot?.setCursor({left: plot.valToPos(Math.min(step + 1, steps.at(-1)), 'x'), top: 10}, true, false)
    }
  }

  function stepAt(time) {
    const index = Math.max(0, starts.findLastIndex(start => start <= time)), ahead = steps[index + 1] ?? steps[index]
    return Math.floor(steps[index] + (ahead - steps[index]) * (time - starts[index]) / delays[index])
  }

  function tick(now) {
    if (before === null) return
    time = (time + Math.max(0, now - before)) % whole // a frame may be of before the button
    before = now
    show(stepAt(time))
    requestAnimationFrame(tick)
  }

  function run(isRunning) {
    button.textContent = isRunning ? 'Pause' : 'Play'
    before = isRunning ? performance.now() : null
    if (isRunning) requestAnimationFrame(tick)
  }

  function seek(step) {
    run(false)
    time = starts[steps.findLastIndex(at => at <= step)]
    show(step)
  }

  button.addEventListener('click', () => run(before === null))
  slider.addEventListener('input', () => seek(Number(slider.value)))
  for (const figure of figures) figure.addEventListener('mousemove', () => {
    const plot = charts.get(figure)?.plot
    if (plot?.cursor.idx != null) seek(plot.data[0][plot.cursor.idx] - 1)
  })
  show(0)
  run(!matchMedia('(prefers-reduced-motion: reduce)').matches)
}

// Pictures and the times at which they begin: equal frames are one in the file, shown for longer.
async function shotsOf(data) {
  const decoder = new ImageDecoder({type: 'image/gif', data}), shots = []
  await Promise.all([decoder.completed, decoder.tracks.ready])
  for (let index = 0, at = 0; index < decoder.tracks.selectedTrack.frameCount; index++) {
    const {image} = await decoder.decode({frameIndex: index})
    shots.push({at, picture: await createImageBitmap(image)})
    at += image.duration / 1000
    image.close()
  }
  return shots
}
