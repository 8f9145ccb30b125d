// What a browser knows about the demonstration page, told to the frame around it as a list of failures.
'use strict';
(function () {
  const failures = window.failures; // errors of scripts, since before the first
  const query = new URLSearchParams(location.search);
  const dark = query.get('theme') === 'dark';
  const simulated = query.has('simulated');

  function expect(holds, words) {
    if (!holds) failures.push(words);
  }

  function pause(ms) {
    return new Promise(resolve => setTimeout(resolve, ms));
  }

  // ---- layout ----

  function checkWidth() {
    expect(innerWidth === Number(query.get('width')), 'the page is ' + innerWidth + ' wide');
    expect(document.documentElement.scrollWidth <= innerWidth,
      'the document is ' + document.documentElement.scrollWidth + ' wide, the window ' + innerWidth);
    for (const element of document.querySelectorAll('main *')) {
      const box = element.getBoundingClientRect();
      if (!element.closest('.scroll') && (box.right > innerWidth + 1 || box.left < -1))
        failures.push('<' + element.tagName + ' class="' + element.className + '"> reaches from ' + box.left + ' to ' + box.right);
    }
  }

  // Texts beside each other must not lie on each other.
  function checkOverlaps() {
    for (const parent of document.querySelectorAll('.bar, .legend, .headlines li, .tools, .facts tr')) {
      const boxes = [...parent.children].map(child => child.getBoundingClientRect());
      boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => expect(
        a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 1 || b.bottom <= a.top + 1,
        'parts of <' + parent.tagName + ' class="' + parent.className + '"> lie on each other')));
    }
  }

  function checkStructure() {
    const headings = [...document.querySelectorAll('h1, h2')].map(heading => heading.textContent);
    const expected = ['mlp and attention forward, 4 ranks', 'Figures', 'Where the time goes', 'Timelines',
      'Exposed time, by operation and peer', 'Losses', 'What the figures mean', 'How the figures were obtained',
      'The same again', 'Machine and settings'];
    expect(headings.join('|') === expected.join('|'), 'the headings are ' + headings.join('|'));
    for (const cell of document.querySelectorAll('th')) expect(cell.scope, 'a header of a table has no scope');
    for (const element of document.querySelectorAll('[src], [href]'))
      expect((element.getAttribute('href') || '').startsWith('#'), 'something is fetched or linked: ' + element.outerHTML);
    expect(performance.getEntriesByType('resource').length === 0, 'the page has fetched something');
    expect(document.querySelector('.differ') === null, 'something differs');
    expect((document.querySelector('.spread') === null) === simulated, 'only what is measured has a spread');
    expect(document.querySelector('.emulated strong').textContent === (simulated ? 'Simulated.' : 'Emulated.'),
      'the origin of the figures is said to be ' + document.querySelector('.emulated').textContent);
    for (const row of document.querySelectorAll('.figures tr')) {
      const columns = [...row.cells].reduce((sum, cell) => sum + cell.colSpan, 0);
      expect(columns === (simulated ? 7 : 9), 'a row of the table has ' + columns + ' columns');
    }
  }

  // ---- colours ----

  function parts(colour) {
    const numbers = colour.match(/[\d.]+/g).map(Number);
    return { rgb: numbers.slice(0, 3), alpha: numbers.length > 3 ? numbers[3] : 1 };
  }

  function luminance(rgb) {
    const linear = rgb.map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * linear[0] + .7152 * linear[1] + .0722 * linear[2];
  }

  function background(element) {
    for (let at = element; at; at = at.parentElement) {
      const found = parts(getComputedStyle(at).backgroundColor);
      if (found.alpha === 1) return found.rgb;
    }
    return [255, 255, 255];
  }

  function checkContrast() {
    const elements = ['h1', 'h2', 'h3', '.subtitle', '.headlines .point', '.headlines span', '.figure', '.bits', '.emulated',
      'thead th', 'tbody td', 'tbody th', '.spread', '.best td', '.best .spread', '.alone th', '.note', '.aside', '.aside a',
      '.what', '.legend li', '.bar .label', '.bar .value', 'figcaption', '.tools button', '.range', '.plot span', 'dt', 'dd',
      'dd em', 'pre code', '#copy', '.facts th', '.facts td'];
    for (const selector of elements) {
      if (simulated && (selector.includes('.spread') || selector === '.bits')) continue;
      const found = document.querySelectorAll(selector);
      expect(found.length > 0, 'there is no ' + selector);
      for (const element of found) {
        const a = luminance(parts(getComputedStyle(element).color).rgb), b = luminance(background(element));
        const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (contrast < 4.5) return void failures.push('contrast of ' + selector + ' is ' + contrast.toFixed(2));
      }
    }
    const cell = document.querySelector('.best td:last-child');
    cell.className = 'differ'; // the demonstration has no difference
    const a = luminance(parts(getComputedStyle(cell).color).rgb), b = luminance(background(cell));
    expect((Math.max(a, b) + .05) / (Math.min(a, b) + .05) >= 4.5, 'results that differ cannot be read');
    cell.className = '';
    const paper = luminance(background(document.body));
    expect(dark ? paper < .05 : paper > .9, 'the paper does not fit the theme');
  }

  // ---- timelines ----

  function pixels(canvas) {
    const found = new Map();
    const data = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    for (const pixel of data) found.set(pixel, (found.get(pixel) || 0) + 1);
    return found;
  }

  function loud() {
    const probe = document.querySelector('.swatch.wait');
    const [r, g, b] = parts(getComputedStyle(probe).backgroundImage.match(/rgba?\([^)]*\)/)[0]).rgb;
    return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  }

  function checkDrawings() {
    const canvases = [...document.querySelectorAll('canvas')];
    expect(canvases.length === 4, 'there are ' + canvases.length + ' timelines');
    const exposed = canvases.map(canvas => {
      const found = pixels(canvas);
      expect(found.size > 8, 'a timeline has ' + found.size + ' colours only');
      return found.get(loud()) || 0;
    });
    expect(exposed[0] > 10 * exposed[3] && exposed[3] > 0, 'exposed pixels: ' + exposed.join(', '));
    const path = document.querySelector('.plot path[class=line0]').getBoundingClientRect();
    expect(path.width > 100 && path.height > 50, 'the curve of losses is ' + path.width + ' x ' + path.height);
    for (const track of document.querySelectorAll('.track')) {
      const box = track.getBoundingClientRect(), bar = track.querySelector('span').getBoundingClientRect();
      expect(bar.width > .2 * box.width && bar.right <= box.right + 1, 'a bar is ' + bar.width + ' of ' + box.width);
    }
  }

  function point(canvas, type, kind, x, y) {
    const box = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new PointerEvent(type, { clientX: box.left + x, clientY: box.top + y, pointerType: kind, bubbles: true }));
  }

  async function checkTip(canvas, kind) {
    const tip = document.getElementById('tip'), x = canvas.clientWidth * .5;
    if (kind === 'touch') {
      point(canvas, 'pointerdown', kind, x, 8);
      point(canvas, 'pointerup', kind, x, 8);
    } else {
      point(canvas, 'pointermove', kind, x, 8);
    }
    const box = tip.getBoundingClientRect();
    expect(!tip.hidden && /\d to .*ms, takes .*ms.*rank 0/.test(tip.textContent), 'by ' + kind + ' the tip is: ' + tip.textContent);
    expect(box.left >= 0 && box.right <= innerWidth, 'the tip reaches from ' + box.left + ' to ' + box.right);
    canvas.dispatchEvent(new PointerEvent('pointerleave', { pointerType: 'mouse' }));
    await pause(60);
    expect(tip.hidden, 'the tip stays');
  }

  async function checkZoom(canvas) {
    const range = document.querySelector('.range'), before = range.textContent;
    const press = async what => {
      document.querySelector('[data-zoom=' + what + ']').click();
      await pause(60);
      return range.textContent;
    };
    const closer = await press('in');
    expect(/^\d.* to \d.* ms$/.test(closer), 'zoomed in, the range is: ' + closer);
    expect(await press('right') !== closer, 'the range does not move');
    expect(await press('all') === before, 'the range is not whole again');
    point(canvas, 'pointerdown', 'mouse', canvas.clientWidth * .3, 8);
    point(canvas, 'pointerup', 'mouse', canvas.clientWidth * .6, 8);
    await pause(60);
    expect(range.textContent !== before, 'dragging does not zoom');
    canvas.dispatchEvent(new KeyboardEvent('keydown', { key: '0' }));
    await pause(60);
    expect(range.textContent === before, 'the key 0 does not show all');
  }

  async function check() {
    await pause(100);
    expect(matchMedia('(prefers-color-scheme: dark)').matches === dark, 'the browser prefers another theme');
    checkWidth();
    checkOverlaps();
    checkStructure();
    checkContrast();
    checkDrawings();
    const canvas = document.querySelector('canvas');
    canvas.scrollIntoView();
    await pause(60);
    await checkTip(canvas, 'mouse');
    await checkTip(canvas, 'touch');
    await checkZoom(canvas);
  }

  check().catch(error => failures.push('the check failed: ' + error.stack))
    .finally(() => parent.postMessage(failures, '*'));
})();
