// SPDX-License-Identifier: Apache-2.0 OR MIT
// Draws what /events tells. Text of others is set as text, never as HTML.
'use strict';

const of = id => document.getElementById(id);

// From the address that asmp web has printed; it stays in this tab.
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

function partition(one) {
  const holds = one.violations.length === 0;
  const lines = one.irqs.length ? `, IRQ ${one.irqs.join(', ')}` : '';
  const header = element('header', {}, element('h3', {}, one.name),
    element('span', {}, `CPU ${one.cpus}`),
    element('span', {}, holds ? 'holds' : `violated: ${one.violations.length}`),
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
  } else {
    children.push(element('p', { class: 'dim' }, 'no tasks inside'));
  }
  return element('article', { class: holds ? 'partition' : 'partition violated' }, ...children);
}

// The first press asks, the second ends it.
function end(name) {
  const button = element('button', { type: 'button', 'data-key': `end ${name}` }, `End ${name}`);
  button.addEventListener('click', () => {
    if (button.dataset.asked) return change({ change: 'destroy', name });
    button.dataset.asked = 'yes';
    button.textContent = `Press again to end ${name}`;
    setTimeout(() => { delete button.dataset.asked; button.textContent = `End ${name}`; }, 5000);
  });
  return button;
}

async function change(what) {
  of('said').textContent = 'asked …';
  try {
    const answer = await ask('/change', {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(what),
    });
    const text = await answer.text();
    of('said').textContent = answer.status === 409 ? `refused: ${JSON.parse(text).why}` : text;
  } catch (error) {
    of('said').textContent = `asmp web does not answer: ${error.message}`;
  }
}

of('create').addEventListener('submit', event => {
  event.preventDefault();
  change({ change: 'create', name: of('name').value, cpus: of('cpus').value });
});
of('cpus').addEventListener('input', mark);

let changes = false;

function see(told) {
  if (told.failed !== undefined) {
    of('state').textContent = `the machine cannot be read: ${told.failed}`;
    return;
  }
  const seen = told.seen;
  changes = seen.changes;
  of('create').hidden = !changes;
  of('host').textContent = `${seen.host}, Linux ${seen.kernel}`;
  const only = changes ? '' : ', read only: asmp web runs without root';
  of('state').textContent = `${seen.time} UTC, ${seen.held}${only}`;
  const is_violated = seen.violations.length ||
    seen.partitions.some(one => one.violations.length);
  document.title = is_violated ? 'violated: asmp' : 'asmp';
  draw('violations', seen.violations, all => all.map(what =>
    element('li', {}, `violated: ${what}`)));
  draw('map', seen.cpus, map);
  draw('partitions', [seen.partitions, changes], ([all]) => all.length
    ? all.map(partition) : [element('p', { class: 'dim' }, 'there are none')]);
  draw('events', seen.events, all => all.length
    ? all.map(one =>
      element('li', {}, element('span', { class: 'dim number' }, `${one.time} `), one.text))
    : [element('li', { class: 'dim' }, 'nothing')]);
}

async function watch() {
  for (;;) {
    try {
      const answer = await ask('/events');
      if (answer.status !== 200) {
        of('state').textContent = await answer.text();
        // The token will not become right.
        if (answer.status === 401) return;
      } else {
        await read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
      }
    } catch { /* It has ended, or is being started again. */ }
    of('state').textContent = `asmp web does not answer: what is below is old`;
    await new Promise(done => setTimeout(done, 2000));
  }
}

async function read(reader) {
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n\n');
    rest = parts.pop();
    // What comes fast is drawn once.
    const last = parts.pop();
    if (last?.startsWith('data: ')) see(JSON.parse(last.slice(6)));
  }
}

async function reports() {
  const answer = await ask('/reports');
  const names = answer.status === 200 ? await answer.json() : [];
  of('of-reports').hidden = names.length === 0;
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
  watch();
  reports().catch(() => {});
} else {
  of('state').textContent = 'open the address that asmp web printed';
}
