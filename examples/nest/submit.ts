// `lock.once` in NestJS 11 and 12, on Express or Fastify: a module with its interceptor, filter and
// lifecycle. Import the module, put `@UseInterceptors(Once)` on a route whose guard has set
// `request.user`, and call `app.enableShutdownHooks()`. In a test:
// `.overrideProvider(SubmitLock).useValue(new SubmitLock({ store: new MemoryStore() }))`.
import { setTimeout as sleep } from "node:timers/promises";
import {
  type ArgumentsHost,
  BadRequestException,
  type BeforeApplicationShutdown,
  type CallHandler,
  Catch,
  ConflictException,
  type ExecutionContext,
  Global,
  Inject,
  Injectable,
  Logger,
  Module,
  type NestInterceptor,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  StreamableFile,
} from "@nestjs/common";
import { APP_FILTER, BaseExceptionFilter, HttpAdapterHost } from "@nestjs/core";
import { Redis } from "ioredis";
import { lastValueFrom, type Observable, of } from "rxjs";
import { fingerprintOf, parseIdempotencyKey, problemOf, RedisStore, SubmitLock } from "submit-lock";

/**
 * One order for each `Idempotency-Key`: a repeat gets the controller's value and its `Location`, and
 * is a 409 where that was a stream, bytes or an answer by `@Res()`. What hides members of the value
 * stands behind it, as in `@UseInterceptors(Once, ClassSerializerInterceptor)`; a time-out in front
 * of it. A controller that changes the session awaits its `save`. Uploaded files are not compared.
 */
@Injectable()
export class Once implements NestInterceptor {
  @Inject(SubmitLock) private readonly lock!: SubmitLock;
  @Inject(HttpAdapterHost) private readonly host!: HttpAdapterHost;

  async intercept(context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    const http = context.switchToHttp();
    const [request, response] = [http.getRequest(), http.getResponse()];
    const header = parseIdempotencyKey((request.raw ?? request).headersDistinct["idempotency-key"]);
    if (header.kind !== "key") throw new BadRequestException("Send a readable Idempotency-Key");
    const [path] = (request.originalUrl ?? request.url).split("?");
    const submission = {
      id: `${request.method} ${path} ${header.key}`,
      fingerprint: fingerprintOf([request.query, request.body ?? null]),
    };
    const { httpAdapter } = this.host;
    let unkept: unknown;
    const { value, replayed } = await this.lock.once(request.user, submission, async (lease) => {
      request.submitLease = lease; // yours: hand its signal on, and look at it before the insert
      const body = await lastValueFrom(next.handle(), { defaultValue: undefined });
      const location = httpAdapter.getHeader?.(response, "Location");
      if (body instanceof StreamableFile || body instanceof Uint8Array) unkept = body;
      const isKept = unkept === undefined && !(response.sent ?? response.headersSent);
      return { isKept, location, body: isKept ? body : undefined };
    });
    if (replayed && !value.isKept) throw new ConflictException("Placed; its answer is not kept");
    if (replayed) httpAdapter.setHeader(response, "Idempotent-Replayed", "true");
    // A repeat that waited has read its session before the first order: do not save that one again.
    const { session } = request;
    if (replayed && typeof session?.reload === "function") {
      const reloaded = new Promise<void>((done) => session.reload(() => done()));
      await Promise.race([reloaded, sleep(1_000, undefined, { ref: false })]).catch(() => {});
    }
    if (value.location) httpAdapter.setHeader(response, "Location", value.location);
    return of(unkept ?? value.body);
  }
}

/** Refusals are the guard's: status, code, `Retry-After`, a page for a form; only a 503 is logged. */
@Catch()
export class Refusals extends BaseExceptionFilter {
  @Inject(HttpAdapterHost) private readonly host!: HttpAdapterHost;

  override catch(error: unknown, host: ArgumentsHost): void {
    const http = host.switchToHttp();
    const problem = problemOf(error, http.getRequest().headers.accept);
    if (problem === undefined) {
      super.catch(error, host);
      return;
    }
    if (problem.status === 503) new Logger(Refusals.name).error(error);
    const { httpAdapter } = this.host;
    const response = http.getResponse();
    for (const [name, value] of Object.entries(problem.headers)) {
      httpAdapter.setHeader(response, name, value);
    }
    httpAdapter.reply(response, problem.body, problem.status);
  }
}

const redis = {
  provide: Redis,
  useFactory: () => new Redis(process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379"),
};

/** While Redis is away, orders are 503. At the end, orders under way have ten seconds. */
@Injectable()
export class SubmitLifecycle
  implements OnApplicationBootstrap, BeforeApplicationShutdown, OnApplicationShutdown
{
  @Inject(HttpAdapterHost) private readonly host!: HttpAdapterHost;
  @Inject(SubmitLock) private readonly lock!: SubmitLock;
  @Inject(Redis) private readonly redis!: Redis;

  async onApplicationBootstrap(): Promise<void> {
    await this.lock.check({ submissions: true }).catch((error) => {
      if (error.code !== "SUBMIT_LOCK_UNAVAILABLE") throw error;
      console.warn(error);
    });
  }

  /** A connection that is silent keeps a server open: for its keep-alive, or without an end. */
  beforeApplicationShutdown(): void {
    const server = this.host.httpAdapter.getHttpServer();
    setInterval(() => server.closeIdleConnections?.(), 50).unref();
    setTimeout(() => server.closeAllConnections?.(), 10_000).unref();
  }

  async onApplicationShutdown(): Promise<void> {
    await this.lock.close({ timeoutMs: 10_000 });
    this.redis.disconnect();
  }
}

@Global()
@Module({
  providers: [
    redis,
    {
      provide: SubmitLock,
      useFactory: (client: Redis) => new SubmitLock({ store: new RedisStore(client) }),
      inject: [Redis],
    },
    { provide: APP_FILTER, useClass: Refusals },
    SubmitLifecycle,
  ],
  exports: [SubmitLock],
})
export class SubmitModule {}
