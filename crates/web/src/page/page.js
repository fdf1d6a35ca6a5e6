// SPDX-License-Identifier: Apache-2.0 OR MIT
// Draws what /events tells. Text of others is set as text, never as HTML.
'use strict';

const of = id => document.getElementById(id);

// From the address that asmp web has printed; it stays in this tab. Each start has a new one.
addEventListener('hashchange', () => location.reload());
const given = /^#token=([0-9a-f]{64})$/.exec(location.hash);
if (given) sessionStorage.setItem('token', given[1]);
if (location.hash) history.replaceState(null, '', location.pathname);
const token = sessionStorage.getItem('token');

const ask = (path, more = {}) =>
  fetch(path, { ...more, headers: { ...more.headers, Authorization: `Bearer ${token}` } });

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'class') made.className = value;
    else if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Replaces what is there where it differs, so that the keyboard stays where it is.
const drawn = new Map();
function draw(id, what, make) {
  const now = JSON.stringify(what);
  if (drawn.get(id) === now) return;
  drawn.set(id, now);
  const focus = document.activeElement?.dataset?.key;
  of(id).replaceChildren(...make(what));
  if (focus) document.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
}

const rate = (count) => count === 0 ? '0' : count < 9.95 ? count.toFixed(1) : count.toFixed(0);

function cpu(one) {
  const rates = one.rates;
  const whose = one.partition ?? one.state;
  const lines = [element('b', {}, `CPU ${one.cpu}`), element('span', {}, whose)];
  if (one.partition) lines.push(element('span', { class: 'dim' }, one.state));
  if (rates) {
    const sum = rates.ticks + rates.devices + rates.ipis + rates.softirqs;
    const title = `ticks ${rate(rates.ticks)}, devices ${rate(rates.devices)}, ` +
      `IPIs ${rate(rates.ipis)}, softirqs ${rate(rates.softirqs)} a second`;
    lines.push(element('span', { class: 'dim number', title }, `${rate(sum)} events/s`));
  }
  const is_free = one.state === 'system' && changes;
  return element(is_free ? 'button' : 'div', {
    class: `cpu ${one.state.replace(' ', '-')}`, 'data-key': `cpu${one.cpu}`,
    ...(is_free && {
      type: 'button', 'aria-pressed': chosen().includes(one.cpu), onclick: () => choose(one.cpu),
    }),
  }, ...lines);
}

const chosen = () => of('cpus').value.split(',').filter(word => /^\d+$/.test(word)).map(Number);

function choose(number) {
  const now = chosen();
  const next = now.includes(number) ? now.filter(one => one !== number) : [...now, number];
  of('cpus').value = next.sort((a, b) => a - b).join(',');
  mark();
}

function mark() {
  for (const button of document.querySelectorAll('button.cpu')) {
    button.setAttribute('aria-pressed', chosen().includes(Number(button.dataset.key.slice(3))));
  }
}

function map(cpus) {
  const groups = (all, key) => [...new Set(all.map(one => one[key]))]
    .map(value => [value, all.filter(one => one[key] === value)]);
  return groups(cpus, 'socket').map(([socket, inside]) => element('div', { class: 'socket' },
    element('span', { class: 'dim' }, `socket ${socket}`),
    ...groups(inside, 'core').map(([, threads]) => threads.length === 1
      ? cpu(threads[0])
      : element('div', { class: 'core', title: 'threads of one core' }, ...threads.map(cpu)))));
}

function partition(one, blind) {
  const holds = one.violations.length === 0;
  const state = blind ? 'unknown' : one.unchecked ? 'not checked' : 'holds';
  const lines = one.irqs.length ? `, IRQ ${one.irqs.join(', ')}` : '';
  const header = element('header', {}, element('h3', {}, one.name),
    element('span', {}, `CPU ${one.cpus}`),
    element('span', {}, holds ? state : `violated: ${one.violations.length}`),
    element('span', { class: 'dim' }, `tick ${one.tick}${lines}`));
  if (changes) header.append(end(one.name));
  const children = [header,
    element('p', { class: 'dim' }, `since ${one.since} UTC, by ${one.by}`)];
  const violated = what => element('li', {}, what);
  if (!holds) children.push(element('ul', {}, ...one.violations.map(violated)));
  if (one.latency) children.push(element('p', { class: 'number' }, one.latency));
  if (one.tasks.length) {
    const words = ['task', 'policy', 'command'];
    const head = element('tr', {}, ...words.map(word => element('th', {}, word)));
    const cell = text => element('td', { class: 'number' }, String(text));
    const rows = one.tasks.map(task =>
      element('tr', {}, ...[task.tid, task.policy, task.command].map(cell)));
    const body = element('tbody', {}, ...rows);
    children.push(element('table', {}, element('thead', {}, head), body));
    if (one.more_tasks) children.push(element('p', { class: 'dim' }, `and ${one.more_tasks} more`));
  } else {
    children.push(element('p', { class: 'dim' }, 'no tasks inside'));
  }
  return element('article', { class: holds ? 'partition' : 'partition violated' }, ...children);
}

// The first press asks, the second ends it. What was asked outlives a button that is drawn anew.
const asked = new Map();
function end(name) {
  const words = () => asked.has(name) ? `Press again to end ${name}` : `End ${name}`;
  const button = element('button', { type: 'button', 'data-key': `end ${name}` }, words());
  button.addEventListener('click', () => {
    const again = asked.has(name);
    clearTimeout(asked.get(name));
    asked.delete(name);
    if (again) change({ change: 'destroy', name });
    else asked.set(name, setTimeout(() => { asked.delete(name); label(); }, 5000));
    label();
  });
  const label = () => {
    const shown = document.querySelector(`[data-key="${CSS.escape(`end ${name}`)}"]`);
    if (shown) shown.textContent = words();
  };
  return button;
}

async function change(what) {
  if (!is_live) {
    of('said').textContent = 'not asked: what is shown is old';
    return;
  }
  of('said').textContent = 'asked …';
  try {
    const answer = await ask('/change', {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(what),
      signal: AbortSignal.timeout(60000),
    });
    const text = await answer.text();
    of('said').textContent = answer.status === 409 ? `refused: ${JSON.parse(text).why}` : text;
  } catch (error) {
    of('said').textContent = `no answer (${error.message}): look whether the change was made`;
  }
}

of('create').addEventListener('submit', event => {
  event.preventDefault();
  change({ change: 'create', name: of('name').value, cpus: of('cpus').value });
});
of('cpus').addEventListener('input', mark);

let changes = false;

// What is shown is of now. Else the page must not say that a partition holds.
let is_live = false;
function live(is) {
  is_live = is;
  document.body.classList.toggle('old', !is);
  if (!is) document.title = 'old: asmp';
}

function old(why) {
  live(false);
  of('state').textContent = `${why}: what is below is old`;
}

let last_ms = 0;
setInterval(() => {
  const since_s = Math.round((performance.now() - last_ms) / 1000);
  if (is_live && since_s > 8) old(`asmp web has told nothing for ${since_s} s`);
}, 1000);

function see(told) {
  last_ms = performance.now();
  if (told.failed !== undefined) return old(`the machine cannot be read: ${told.failed}`);
  live(true);
  const seen = told.seen;
  changes = seen.changes;
  of('create').hidden = !changes;
  of('host').textContent = `${seen.host}, Linux ${seen.kernel}`;
  const only = changes ? '' : ', read only: asmp web runs without root';
  of('state').textContent = `${seen.time} UTC, ${seen.held}${only}`;
  const is_violated = seen.violations.length ||
    seen.partitions.some(one => one.violations.length);
  const title = seen.blind ? 'unknown: asmp' : 'asmp';
  document.title = is_violated ? 'violated: asmp' : title;
  draw('violations', seen.violations, all => all.map(what =>
    element('li', {}, `violated: ${what}`)));
  draw('map', seen.cpus, map);
  draw('partitions', [seen.partitions, changes, seen.blind], ([all]) => all.length
    ? all.map(one => partition(one, seen.blind)) : [element('p', { class: 'dim' }, 'there are none')]);
  draw('events', [seen.events, seen.held], ([all, held]) => all.length
    ? all.map(one =>
      element('li', {}, element('span', { class: 'dim number' }, `${one.time} `), one.text))
    : [element('li', { class: 'dim' }, `nothing (${held})`)]);
}

// The server of the first answer. Another program may have its address later.
let server = null;
let watching = null;

// Until the page is hidden, or the connection is lost: then it does not ask again by itself.
async function watch() {
  const own = watching = new AbortController();
  try {
    const answer = await ask('/events', { signal: own.signal });
    if (answer.status !== 200) return old(await answer.text());
    await read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    old('asmp web has ended');
  } catch (error) {
    if (!own.signal.aborted) old(`the connection is lost (${error.message})`);
  }
}

document.addEventListener('visibilitychange', () => {
  if (!token) return;
  watching?.abort();
  if (document.hidden) old('not looked at'); else watch();
});

async function read(reader) {
  let rest = '';
  let is_known = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n\n');
    rest = parts.pop();
    const told = parts.filter(part => part.startsWith('data: '))
      .map(part => JSON.parse(part.slice(6)));
    // Each stream begins with the server's name.
    if (!is_known && told.length) {
      const name = told.shift().server;
      server ??= name;
      is_known = name !== undefined && name === server;
      if (!is_known) throw new Error('another program has its address: close this page');
    }
    // What comes fast is drawn once.
    const last = told.pop();
    if (last) see(last);
  }
}

async function reports() {
  const answer = await ask('/reports');
  const names = answer.status === 200 ? await answer.json() : [];
  const isGone = answer.status === 404;
  if (isGone) of('report').textContent = await answer.text();
  of('of-reports').hidden = names.length === 0 && !isGone;
  of('reports').replaceChildren(...names.map(name => element('li', {},
    element('button', { type: 'button', onclick: () => show(name) }, name))));
}

// In a frame that runs no script and is of no origin.
async function show(name) {
  const answer = await ask(`/reports/${encodeURIComponent(name)}`);
  const text = await answer.text();
  of('report').replaceChildren(answer.status === 200
    ? element('iframe', { sandbox: '', title: name, srcdoc: text })
    : element('p', {}, text));
}

if (token) {
  if (!document.hidden) watch();
  reports().catch(() => {});
} else {
  of('state').textContent = 'open the address that asmp web printed';
}
