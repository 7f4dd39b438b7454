import type { Context, ParameterizedContext } from "koa";

// biome-ignore lint/suspicious/noExplicitAny: any state and any context of the application fits.
type AnyContext = ParameterizedContext<any, any, any>;

/** Registered, so that two copies of the package find each other's. */
const watchOf: unique symbol = Symbol.for("submit-lock.outermost");
const isPrepared: unique symbol = Symbol.for("submit-lock.outermost.prepared");

/** What a context that is watched knows. */
interface Watch {
  respond: unknown;
  /** In this very turn. */
  respondWasRead: boolean;
  readonly onerror: Context["onerror"];
  readonly listeners: ((respond: unknown) => void)[];
}

interface Watched {
  [watchOf]?: Watch;
}

/**
 * Calls back when the outermost middleware has settled, with `ctx.respond`.
 *
 * Nothing of Koa says so to a middleware further in. But Koa then reads `ctx.respond` and right
 * after it, unless that is false, `ctx.writable`; or it calls `ctx.onerror`. The two reads count only
 * together: a middleware may look at one of them while it is still at work.
 */
export function whenOutermostSettled(ctx: AnyContext, settled: (respond: unknown) => void): void {
  const watched = ctx as AnyContext & Watched;
  // A guard further in may be waiting for the same.
  if (watched[watchOf] !== undefined) {
    watched[watchOf].listeners.push(settled);
    return;
  }
  prepare(ctx.app?.context);
  const { respond, onerror } = ctx;
  watched[watchOf] = { respond, respondWasRead: false, onerror, listeners: [settled] };
  Object.defineProperty(ctx, "respond", watchedRespond);
  ctx.onerror = watchedOnerror;
}

/** The one whose `respond` was read last. */
let lastRead: Watch | undefined;
const soon = Promise.resolve();

function forgetLastRead(): void {
  if (lastRead !== undefined) lastRead.respondWasRead = false;
  lastRead = undefined;
}

function tell({ respond, listeners }: Watch): void {
  for (const settled of listeners) settled(respond);
}

/**
 * Shared accessors keep one hidden class for all contexts. A closure for each would even keep every
 * request in memory until the next major collection, on Node 20.
 */
const watchedRespond: PropertyDescriptor & ThisType<Required<Watched>> = {
  configurable: true,
  enumerable: true,
  get() {
    const watch = this[watchOf];
    forgetLastRead();
    watch.respondWasRead = true;
    lastRead = watch;
    void soon.then(forgetLastRead);
    return watch.respond;
  },
  set(value: unknown) {
    this[watchOf].respond = value;
  },
};

function watchedOnerror(this: AnyContext & Required<Watched>, error: Error): void {
  const watch = this[watchOf];
  watch.onerror.call(this, error);
  // Koa also calls it without an error, whenever a response is over.
  if (error) tell(watch);
}

/** Watches `writable` for all requests of an application: once, on what its contexts inherit from. */
function prepare(appContext: (object & { [isPrepared]?: true }) | undefined): void {
  if (appContext === undefined || Object.hasOwn(appContext, isPrepared)) return;
  appContext[isPrepared] = true;
  const outer = Object.getOwnPropertyDescriptor(appContext, "writable");
  const inherited = Object.getPrototypeOf(appContext);
  const watchedWritable: PropertyDescriptor & ThisType<Watched> = {
    configurable: true,
    get() {
      const watch = this[watchOf];
      if (watch?.respondWasRead) tell(watch);
      if (outer !== undefined) return outer.get ? outer.get.call(this) : outer.value;
      return Reflect.get(inherited, "writable", this);
    },
  };
  Object.defineProperty(appContext, "writable", watchedWritable);
}
