// Asks a server through ioredis and node-redis, and prints what they make of each answer: see
// test_other_clients.py.
const [host, port] = process.argv[2].split(':');
const say = (what, v) => console.log(what + ': ' + (v instanceof Error ? 'error ' + v.message : JSON.stringify(v)));
const t = async (what, p) => { try { say(what, await p()); } catch (e) { say(what, e); } };
const sleep = ms => new Promise(r => setTimeout(r, ms));
const noidle = rows => JSON.parse(JSON.stringify(rows), (k, v) => /idle|inactive|millisecondsSinceLastDelivery/.test(k) ? 0 : v);
async function withIoredis() {
  const Redis = require('ioredis');
  const c = new Redis({ host, port: +port, lazyConnect: true, connectionName: 'io' });
  await c.connect(); await c.del('s', 't');
  await t('ping', () => c.ping());
  for (let i = 1; i <= 5; i++) await t('xadd', () => c.xadd('s', `${i}-0`, 'n', i));
  await t('xadd again', () => c.xadd('s', '1-0', 'n', 1));
  await t('xrange', () => c.xrange('s', '-', '+', 'COUNT', 3));
  await t('group', () => c.xgroup('CREATE', 's', 'g', '0'));
  await t('group again', () => c.xgroup('CREATE', 's', 'g', '0'));
  await t('xreadgroup', () => c.xreadgroup('GROUP', 'g', 'alice', 'COUNT', 3, 'BLOCK', 10, 'STREAMS', 's', '>'));
  await t('xack', () => c.xack('s', 'g', '1-0'));
  await t('xpending', () => c.xpending('s', 'g'));
  await t('xautoclaim', () => c.xautoclaim('s', 'g', 'bob', 0, '0', 'COUNT', 1));
  await t('xinfo', () => c.xinfo('STREAM', 's'));
  await t('xinfo groups', () => c.xinfo('GROUPS', 's'));
  await t('pipeline', async () => (await c.pipeline().xadd('t', '1-1', 'a', 'b').xadd('t', '1-1', 'a', 'b').xlen('t').exec()).map(([e, v]) => e ? e.message : v));
  await t('multi', () => c.multi().xadd('t', '2-1', 'a', 'b').xlen('t').exec());
  const w = c.duplicate(); await w.connect();
  const waits = t('xread block', () => w.xread('BLOCK', 20000, 'STREAMS', 't', '$'));
  await sleep(300); await c.xadd('t', '9-1', 'a', 'b'); await waits;
  await t('time-out', () => w.xread('BLOCK', 20, 'STREAMS', 't', '$'));
  await t('scan', () => new Promise((ok, no) => { const all = []; c.scanStream({ match: 't*' }).on('data', k => all.push(...k)).on('end', () => ok(all)).on('error', no); }));
  await t('buffer', async () => (await c.xrangeBuffer('t', '9-1', '9-1'))[0][1].map(b => b.toString('hex')));
  await t('name', () => c.client('GETNAME'));
  await t('quit', () => c.quit()); w.disconnect();
}
async function withNodeRedis(RESP) {
  const { createClient } = require('redis');
  const c = createClient({ url: `redis://${host}:${port}`, RESP, name: 'node' });
  c.on('error', e => say('client', e));
  await c.connect(); await c.del(['s', 't']);
  await t('ping', () => c.ping());
  for (let i = 1; i <= 5; i++) await t('xadd', () => c.xAdd('s', `${i}-0`, { n: `${i}` }));
  await t('xadd trim', () => c.xAdd('s', '6-0', { n: '6' }, { TRIM: { strategy: 'MAXLEN', strategyModifier: '~', threshold: 100 } }));
  await t('xadd again', () => c.xAdd('s', '1-0', { n: '1' }));
  await t('xrange', () => c.xRange('s', '-', '+', { COUNT: 3 }));
  await t('group', () => c.xGroupCreate('s', 'g', '0', { MKSTREAM: true }));
  await t('group again', () => c.xGroupCreate('s', 'g', '0'));
  await t('xreadgroup', () => c.xReadGroup('g', 'alice', { key: 's', id: '>' }, { COUNT: 3, BLOCK: 10 }));
  await t('xack', () => c.xAck('s', 'g', '1-0'));
  await t('xpending', () => c.xPending('s', 'g'));
  await t('xpending range', async () => noidle(await c.xPendingRange('s', 'g', '-', '+', 10)));
  await t('xautoclaim', () => c.xAutoClaim('s', 'g', 'bob', 0, '0', { COUNT: 1 }));
  await t('xclaim', () => c.xClaim('s', 'g', 'carl', 0, '2-0'));
  await t('xinfo', () => c.xInfoStream('s'));
  await t('xinfo groups', () => c.xInfoGroups('s'));
  await t('xinfo consumers', async () => noidle(await c.xInfoConsumers('s', 'g')));
  await t('pipeline', () => Promise.all([c.xAdd('t', '1-1', { a: 'b' }), c.xLen('t'), c.xTrim('t', 'MAXLEN', 10)]));
  await t('multi', () => c.multi().xAdd('t', '2-1', { a: 'b' }).xLen('t').exec());
  const w = c.duplicate(); await w.connect();
  const waits = t('xread block', () => w.xRead({ key: 't', id: '$' }, { BLOCK: 20000 }));
  await sleep(300); await c.xAdd('t', '9-1', { a: 'b' }); await waits;
  await t('time-out', () => w.xRead({ key: 't', id: '$' }, { BLOCK: 20 }));
  await t('scan', async () => { const all = []; for await (const k of c.scanIterator({ MATCH: 't*', TYPE: 'stream' })) all.push(k); return all.flat(); });
  await t('name', () => c.clientGetName());
  await t('type', () => c.type('s'));
  await w.close(); await c.close();
}
(async () => { await withIoredis(); console.log('--'); await withNodeRedis(2); console.log('--'); await withNodeRedis(3); console.log('end'); })().catch(e => { console.log('failed', e.stack.split('\n').slice(0, 3).join('|')); process.exit(1); });
