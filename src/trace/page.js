// Draws the timelines of the report: one canvas a strategy, one range of time for all of them.
'use strict';
(function () {
  const source = document.getElementById('timeline-data');
  const copy = document.getElementById('copy');
  if (copy) prepareCopy(copy, document.getElementById('command'));
  if (!source) return;

  // Kinds of events and types of lanes, as the library numbers them.
  const COMPUTE = 0, WAIT = 4, LOCAL = 5, SEND = 6;
  const COMPUTING = 0, SENDING = 1;
  const VERBS = ['', 'add ', 'copy ', 'pack ', '', '', '', ''];
  const FIELDS = 9;
  const TRACKS = 4; // thin lines of a rank and direction; more at a time lie on each other

  const data = JSON.parse(source.textContent);
  const parts = data.parts.map(readPart);
  const whole = Math.max(1, ...parts.map(part => part.span));
  const tip = document.createElement('div');
  tip.id = 'tip';
  tip.hidden = true;
  document.body.append(tip);
  let view = [0, whole]; // nanoseconds
  let colours = readColours();
  let pending = false;

  parts.forEach(prepareCanvas);
  prepareTools();
  tellRange();
  new ResizeObserver(redraw).observe(document.querySelector('main'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolour);
  addEventListener('beforeprint', () => { document.documentElement.classList.add('printing'); recolour(true); });
  addEventListener('afterprint', () => { document.documentElement.classList.remove('printing'); recolour(); });
  addEventListener('scroll', hideTip, { passive: true });
  drawAll();

  // ---- data ----

  // A lane has its times as arrays for searching, and the other fields where they were.
  function readLane(raw) {
    const [type, rank, peer, channel, fields] = raw;
    const count = fields.length / FIELDS;
    const lane = { type, rank, peer, channel, fields, count,
      begin: new Float64Array(count), end: new Float64Array(count), track: new Uint8Array(count) };
    for (let i = 0, at = 0; i < count; i++) {
      lane.begin[i] = at += fields[i * FIELDS];
      lane.end[i] = at += fields[i * FIELDS + 1];
    }
    return lane;
  }

  // Messages that are under way at the same time get tracks below each other.
  function giveTracks(lanes) {
    const ends = [];
    const heads = lanes.map(() => 0);
    for (;;) {
      let next = -1;
      lanes.forEach((lane, i) => {
        if (heads[i] < lane.count && (next < 0 || lane.begin[heads[i]] < lanes[next].begin[heads[next]])) next = i;
      });
      if (next < 0) return Math.max(1, ends.length);
      const lane = lanes[next], box = heads[next]++;
      let track = ends.findIndex(end => end <= lane.begin[box]);
      if (track < 0) track = ends.length < TRACKS ? ends.length : TRACKS - 1;
      ends[track] = lane.end[box];
      lane.track[box] = track;
    }
  }

  // Strips: what is drawn below each other, with their place in pixels.
  function readPart(raw, index) {
    const lanes = raw.lanes.map(readLane);
    const part = { index, label: raw.label, ranks: raw.ranks, span: raw.span, strips: [], marks: [], height: 2 };
    const tall = raw.ranks > 8 ? 12 : 18, thin = raw.ranks > 8 ? 3 : 5;
    for (let rank = 0; rank < raw.ranks; rank++) {
      const own = lanes.filter(lane => lane.rank === rank);
      if (own.length === 0) continue;
      part.marks.push({ rank, y: part.height + tall / 2 });
      part.strips.push({ y: part.height, each: tall, high: tall, lanes: own.filter(lane => lane.type === COMPUTING) });
      part.height += tall + 2;
      const travelling = own.filter(lane => lane.type !== COMPUTING);
      for (const type of travelling.length ? [SENDING, SENDING + 1] : []) {
        const some = travelling.filter(lane => lane.type === type);
        const high = giveTracks(some) * (thin + 1);
        part.strips.push({ y: part.height, each: thin, high, lanes: some });
        part.height += high + 1;
      }
      part.height += raw.ranks > 8 ? 4 : 8;
    }
    return part;
  }

  function field(lane, box, index) {
    return lane.fields[box * FIELDS + index];
  }

  // The first box that ends after `time`.
  function firstAfter(lane, time) {
    let low = 0, high = lane.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane.end[middle] > time) high = middle; else low = middle + 1;
    }
    return low;
  }

  // ---- words ----

  function milliseconds(ns, span) {
    const digits = Math.min(6, Math.max(0, 3 - Math.floor(Math.log10(Math.max(span, 1) / 1e6))));
    return (ns / 1e6).toFixed(digits);
  }

  function sliceName(lane, box) {
    const shard = field(lane, box, 4), sub = field(lane, box, 5);
    return shard < 0 ? '' : 'slice ' + shard + (sub < 0 ? '' : '.' + sub);
  }

  function describe(lane, box) {
    const kind = field(lane, box, 2), rows = field(lane, box, 7), row = field(lane, box, 6), peer = field(lane, box, 8);
    const [name, slot] = data.operations[field(lane, box, 3)];
    const slice = sliceName(lane, box), span = view[1] - view[0];
    const lines = [];
    if (kind === WAIT) lines.push('exposed: waiting' + (peer < 0 ? '' : ' for rank ' + peer), 'of ' + name + (slice && ', ' + slice));
    else lines.push(name + (kind === LOCAL || !(VERBS[kind] + slice) ? '' : ': ' + VERBS[kind] + slice) +
      (kind === COMPUTE && slot > 0 ? ', product ' + (slot + 1) : ''));
    if (lane.type !== COMPUTING)
      lines.push((kind === SEND ? 'sent to rank ' : 'received from rank ') + lane.peer +
        (lane.channel === 0 ? ', gathered input' : lane.channel === 1 ? ', partial sums' : ''));
    if (rows > 0) lines.push('rows ' + row + ' to ' + (row + rows - 1));
    lines.push(milliseconds(lane.begin[box], span) + ' to ' + milliseconds(lane.end[box], span) + ' ms, takes ' +
      milliseconds(lane.end[box] - lane.begin[box], span) + ' ms');
    return ['rank ' + lane.rank].concat(lines);
  }

  // ---- drawing ----

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const names = ['paper', 'panel', 'ink', 'soft', 'line', 'pass', 'local', 'wait', 'inputs', 'sums',
      'op0', 'op1', 'op2', 'op3', 'op4', 'op5', 'op6'];
    const found = { font: getComputedStyle(document.body).fontFamily };
    for (const name of names) found[name] = style.getPropertyValue('--' + name).trim();
    found.hatch = makeHatch();
    return found;
  }

  // Light stripes over exposed time: it stays apart from all else on paper without colours, too.
  function makeHatch() {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 8;
    const g = tile.getContext('2d');
    g.strokeStyle = 'rgba(255, 255, 255, .3)';
    g.lineWidth = 1.5;
    for (const at of [-8, 0, 8]) {
      g.moveTo(at - 2, 10);
      g.lineTo(at + 10, -2);
    }
    g.stroke();
    return g.createPattern(tile, 'repeat');
  }

  function colourOf(lane, box) {
    const kind = field(lane, box, 2);
    if (lane.type !== COMPUTING) return lane.channel === 1 ? colours.sums : colours.inputs;
    if (kind === WAIT) return colours.wait;
    if (kind === LOCAL) return colours.local;
    return kind === COMPUTE ? colours['op' + data.operations[field(lane, box, 3)][2]] : colours.pass;
  }

  // Black or white, whichever can be read on the colour.
  function inkOn(colour) {
    const value = parseInt(colour.slice(1), 16);
    const light = [value >> 16, value >> 8 & 255, value & 255].map(c => c / 255)
      .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * light[0] + .7152 * light[1] + .0722 * light[2] > .18 ? '#000000' : '#ffffff';
  }

  function step(span, count) {
    const power = 10 ** Math.floor(Math.log10(span / count)), ratio = span / count / power;
    return power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
  }

  function layout(part) {
    const width = part.canvas.clientWidth, gutter = width < 600 ? 22 : 56;
    return { width, gutter, scale: (width - gutter - 1) / (view[1] - view[0]) };
  }

  // Boxes thinner than a pixel share it from top to bottom, each by its time: a lane far away has as much of
  // every colour as there is time spent so. Exposed time lies at the bottom.
  function drawShares(g, y, high, pixel, shares) {
    const sum = [...shares.values()].reduce((a, b) => a + b, 0), unit = high / Math.max(1, sum);
    const last = colour => colour === colours.wait ? 1 : 0;
    for (const colour of [...shares.keys()].sort((a, b) => last(a) - last(b) || (a < b ? -1 : 1))) {
      g.fillStyle = colour;
      g.fillRect(pixel, y, 1, shares.get(colour) * unit);
      y += shares.get(colour) * unit;
    }
    shares.clear();
  }

  function drawBox(g, strip, lane, box, from, to, y) {
    const colour = colourOf(lane, box), width = to - from - (to - from > 4 ? 1 : 0);
    g.fillStyle = colour;
    g.fillRect(from, y, width, strip.each);
    if (colour === colours.wait && width > 4) {
      g.fillStyle = colours.hatch;
      g.fillRect(from, y, width, strip.each);
    }
    drawLabel(g, strip, lane, box, from, to, colour);
  }

  function drawLane(g, strip, lane, place) {
    const shares = new Map();
    let pixel = -1, pixelY = 0;
    for (let box = firstAfter(lane, view[0]); box < lane.count && lane.begin[box] < view[1]; box++) {
      const from = Math.max(place.gutter, place.gutter + (lane.begin[box] - view[0]) * place.scale);
      const to = Math.min(place.width, place.gutter + (lane.end[box] - view[0]) * place.scale);
      const y = strip.y + lane.track[box] * (strip.each + 1);
      if (to - from >= 1) {
        drawBox(g, strip, lane, box, from, to, y);
        continue;
      }
      if (Math.floor(from) !== pixel || y !== pixelY) drawShares(g, pixelY, strip.each, pixel, shares);
      pixel = Math.floor(from);
      pixelY = y;
      const colour = colourOf(lane, box);
      shares.set(colour, (shares.get(colour) || 0) + to - from);
    }
    drawShares(g, pixelY, strip.each, pixel, shares);
  }

  function drawLabel(g, strip, lane, box, from, to, colour) {
    const kind = field(lane, box, 2);
    if (strip.each < 16 || to - from < 26) return;
    const name = data.operations[field(lane, box, 3)][0];
    const short = kind === LOCAL ? name : kind === WAIT ? 'exposed' : sliceName(lane, box).slice(6);
    const long = kind === LOCAL || kind === WAIT ? short : name + (short && ' ' + short);
    g.font = '11px ' + colours.font;
    const text = [long, short].find(words => words && g.measureText(words).width < to - from - 6);
    if (!text) return;
    g.fillStyle = inkOn(colour);
    g.textAlign = 'left';
    g.fillText(text, from + 3, strip.y + strip.each / 2 + .5);
  }

  function drawAxis(g, part, place) {
    const span = view[1] - view[0], each = step(span, Math.max(2, place.width / 80));
    g.font = '12px ' + colours.font;
    for (let k = Math.ceil(view[0] / each); k * each <= view[1]; k++) {
      const x = place.gutter + (k * each - view[0]) * place.scale;
      g.fillStyle = colours.line;
      g.fillRect(Math.round(x), 0, 1, part.height);
      const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(each / 1e6) - 1e-9)));
      const text = (k * each / 1e6).toFixed(digits) + (k * each + each > view[1] ? ' ms' : '');
      const half = g.measureText(text).width / 2;
      g.fillStyle = colours.soft;
      g.textAlign = 'center';
      g.fillText(text, Math.min(Math.max(x, half), place.width - half), part.height + 9);
    }
  }

  function drawRanks(g, part, place) {
    g.textAlign = 'left';
    g.font = '12px ' + colours.font;
    g.fillStyle = colours.soft;
    for (const mark of part.marks) g.fillText((place.gutter < 40 ? '' : 'rank ') + mark.rank, 0, mark.y + .5);
  }

  function drawEnd(g, part, place) {
    if (part.span < view[0] || part.span > view[1]) return;
    g.fillStyle = colours.ink;
    g.fillRect(Math.min(place.gutter + (part.span - view[0]) * place.scale, place.width - 1), 0, 1, part.height);
  }

  function draw(part) {
    const canvas = part.canvas, place = layout(part), ratio = devicePixelRatio || 1;
    if (place.width === 0) return;
    canvas.style.height = part.height + 18 + 'px';
    canvas.width = Math.round(place.width * ratio);
    canvas.height = Math.round((part.height + 18) * ratio);
    const g = canvas.getContext('2d');
    g.scale(ratio, ratio);
    g.textBaseline = 'middle';
    g.fillStyle = colours.panel;
    for (const strip of part.strips) g.fillRect(place.gutter, strip.y, place.width - place.gutter, strip.high);
    drawAxis(g, part, place);
    for (const strip of part.strips) for (const lane of strip.lanes) drawLane(g, strip, lane, place);
    drawEnd(g, part, place);
    drawRanks(g, part, place);
    if (part.marked) drawMark(g, part, place);
  }

  function drawMark(g, part, place) {
    const { strip, lane, box } = part.marked;
    const from = place.gutter + (lane.begin[box] - view[0]) * place.scale;
    const width = Math.max(1, (lane.end[box] - lane.begin[box]) * place.scale);
    g.strokeStyle = colours.ink;
    g.lineWidth = 2;
    g.strokeRect(from - 1, strip.y + lane.track[box] * (strip.each + 1) - 1, width + 1, strip.each + 2);
  }

  function drawAll() {
    pending = false;
    parts.forEach(part => { if (part.canvas) draw(part); });
  }

  function tellRange() {
    const range = document.querySelector('.range');
    const span = view[1] - view[0];
    range.textContent = span >= whole ? 'Point at a box, or tap it, to see what it is; drag over boxes to look closer.' :
      milliseconds(view[0], span) + ' to ' + milliseconds(view[1], span) + ' ms';
  }

  function redraw() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(drawAll);
  }

  function recolour(now) {
    colours = readColours();
    if (now === true) drawAll(); else redraw();
  }

  // ---- looking closer ----

  function show(from, to) {
    const span = Math.min(whole, Math.max(to - from, 1000)); // no closer than a microsecond
    const start = Math.min(Math.max(from, 0), whole - span);
    view = [start, start + span];
    hideTip();
    tellRange();
    redraw();
  }

  function zoom(factor, around) {
    const centre = around === undefined ? (view[0] + view[1]) / 2 : around;
    show(centre - (centre - view[0]) * factor, centre + (view[1] - centre) * factor);
  }

  function move(part_of_view) {
    const by = (view[1] - view[0]) * part_of_view;
    show(view[0] + by, view[1] + by);
  }

  function act(what) {
    if (what === 'in') zoom(.5);
    if (what === 'out') zoom(2);
    if (what === 'left') move(-.25);
    if (what === 'right') move(.25);
    if (what === 'all') show(0, whole);
  }

  function prepareTools() {
    const tools = document.querySelector('.tools');
    tools.hidden = false;
    tools.addEventListener('click', event => act(event.target.dataset.zoom));
  }

  function timeAt(part, x) {
    const place = layout(part);
    return view[0] + Math.max(0, x - place.gutter) / place.scale;
  }

  // The box under a point, or the nearest one within three pixels.
  function find(part, x, y) {
    const place = layout(part), time = timeAt(part, x), near = 3 / place.scale;
    let best = null, distance = near;
    for (const strip of part.strips) {
      if (x < place.gutter || y < strip.y - 1 || y > strip.y + strip.high) continue;
      const track = Math.floor(Math.max(0, y - strip.y) / (strip.each + 1));
      for (const lane of strip.lanes)
        for (let box = firstAfter(lane, time - near); box < lane.count && lane.begin[box] <= time + near; box++) {
          const away = Math.max(0, lane.begin[box] - time, time - lane.end[box]);
          if ((strip.lanes[0].type === COMPUTING || lane.track[box] === track) && (away < distance || !best)) {
            best = { strip, lane, box };
            distance = away;
          }
        }
    }
    return best;
  }

  function hideTip() {
    tip.hidden = true;
    for (const part of parts)
      if (part.marked) {
        part.marked = null;
        redraw();
      }
  }

  function showTip(part, event) {
    const box = part.canvas.getBoundingClientRect();
    const found = find(part, event.clientX - box.left, event.clientY - box.top);
    if (!found) return hideTip();
    const [where, title, ...lines] = describe(found.lane, found.box);
    const head = document.createElement('b');
    head.textContent = title;
    tip.replaceChildren(head, ...[...lines, where].map(text => {
      const line = document.createElement('span');
      line.textContent = text;
      return line;
    }));
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18, above = event.clientY - tip.offsetHeight - 12;
    tip.style.left = Math.max(8, left) + 'px';
    tip.style.top = (below + tip.offsetHeight > innerHeight - 8 && above > 0 ? above : below) + 'px';
    parts.forEach(other => { if (other !== part) other.marked = null; });
    part.marked = found;
    redraw();
  }

  // A mouse selects the range to look at; a finger moves it.
  function dragged(part, start, event) {
    const box = part.canvas.getBoundingClientRect();
    const a = timeAt(part, start.x - box.left), b = timeAt(part, event.clientX - box.left);
    if (Math.abs(event.clientX - start.x) < 6) return showTip(part, event);
    if (event.pointerType === 'mouse') show(Math.min(a, b), Math.max(a, b));
    else show(start.view[0] + a - b, start.view[1] + a - b);
  }

  function prepareCanvas(part) {
    const home = document.querySelector('.lanes[data-part="' + part.index + '"]');
    if (!home) return;
    const canvas = part.canvas = document.createElement('canvas');
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', 'Timeline of ' + part.label + ', ' + part.ranks + ' ranks, ' +
      milliseconds(part.span, part.span) + ' ms. Keys: plus, minus, left, right, 0 for all.');
    home.append(canvas);
    let start = null;
    canvas.addEventListener('pointerdown', event => { start = { x: event.clientX, view: view.slice() }; });
    canvas.addEventListener('pointerup', event => { if (start) dragged(part, start, event); start = null; });
    canvas.addEventListener('pointercancel', () => { start = null; });
    canvas.addEventListener('pointermove', event => { if (!start && event.pointerType === 'mouse') showTip(part, event); });
    canvas.addEventListener('pointerleave', event => { if (event.pointerType === 'mouse') hideTip(); start = null; });
    canvas.addEventListener('dblclick', () => show(0, whole));
    canvas.addEventListener('wheel', event => {
      if (!event.ctrlKey) return; // without, the page scrolls
      event.preventDefault();
      zoom(Math.exp(event.deltaY / 200), timeAt(part, event.clientX - canvas.getBoundingClientRect().left));
    }, { passive: false });
    canvas.addEventListener('keydown', event => {
      const what = { '+': 'in', '=': 'in', '-': 'out', ArrowLeft: 'left', ArrowRight: 'right', 0: 'all' }[event.key];
      if (!what || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act(what);
    });
  }

  // ---- the command ----

  function prepareCopy(button, code) {
    button.hidden = false;
    button.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch (refused) { // pages from files may not; the selection always works
        getSelection().selectAllChildren(code);
        if (!document.execCommand('copy')) return;
      }
      button.textContent = 'Copied';
      setTimeout(() => { button.textContent = 'Copy'; }, 2000);
    });
  }
})();
