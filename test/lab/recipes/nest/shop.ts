import "reflect-metadata";
import {
  type CallHandler,
  Controller,
  type ExecutionContext,
  Inject,
  type MiddlewareConsumer,
  Module,
  type NestInterceptor,
  type NestModule,
  Post,
  Req,
  RequestMethod,
  Res,
  StreamableFile,
  UseGuards,
  UseInterceptors,
} from "@nestjs/common";
import { HttpAdapterHost, NestFactory } from "@nestjs/core";
import session from "express-session";
import type { Observable } from "rxjs";
import { SubmitLock } from "submit-lock";
import { submitGuard } from "submit-lock/express";
import { OneAtATime, SignedIn } from "./one-at-a-time.js";
// The package's example.
import { Once, SubmitModule } from "./submit.js";

const { PAYMENTS_URL = "", PLATFORM, PORT } = process.env;

async function pay(): Promise<object> {
  return (await (await fetch(PAYMENTS_URL, { method: "POST" })).json()) as object;
}

/** Sets a header of its own, as a controller may. Behind `Once`, so that a repeat does not run it. */
class Located implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    context.switchToHttp().getResponse().header("Location", "/returns/7");
    return next.handle();
  }
}

@Controller()
class Orders {
  @Post("orders")
  place(): Promise<object> {
    return pay();
  }

  @Post("orders/broken")
  async fail(): Promise<object> {
    await pay();
    throw new Error("the order table is away");
  }

  @Post("refunds")
  @UseGuards(SignedIn)
  @UseInterceptors(OneAtATime)
  refund(): Promise<object> {
    return pay();
  }

  @Post("returns")
  @UseGuards(SignedIn)
  @UseInterceptors(Once, Located)
  takeBack(): Promise<object> {
    return pay();
  }

  @Post("labels")
  @UseGuards(SignedIn)
  @UseInterceptors(Once)
  async print(): Promise<StreamableFile> {
    await pay();
    return new StreamableFile(Buffer.from("a label"), { type: "text/plain" });
  }

  @Post("bytes")
  @UseGuards(SignedIn)
  @UseInterceptors(Once)
  async invoice(): Promise<Buffer> {
    await pay();
    return Buffer.from("an invoice");
  }

  @Post("by-hand")
  @UseGuards(SignedIn)
  @UseInterceptors(Once)
  async byHand(response: { status(code: number): { send(body: object): void } }): Promise<void> {
    await pay();
    response.status(201).send({ placed: "by hand" });
  }
}

// As `@Res()` in front of the parameter.
Res()(Orders.prototype, "byHand", 0);

type Waits = (done: () => void) => void;

interface InSession {
  readonly session: { cart?: string[]; reload: Waits; save: Waits };
}

@Controller("session")
class Carts {
  @Inject(SubmitLock) private readonly lock!: SubmitLock;

  @Post("waiting")
  waiting(): number {
    return this.lock.stats().waiting;
  }

  @Post("cart")
  fill({ session }: InSession): string[] {
    session.cart ??= ["apples"];
    return session.cart;
  }

  @Post("orders")
  @UseGuards(SignedIn)
  @UseInterceptors(Once)
  async order(request: InSession): Promise<object> {
    await new Promise<void>((done) => request.session.reload(done));
    await pay();
    const ordered = request.session.cart;
    request.session.cart = [];
    await new Promise<void>((done) => request.session.save(done));
    return { ordered };
  }
}
Req()(Carts.prototype, "fill", 0);
Req()(Carts.prototype, "order", 0);

@Module({ imports: [SubmitModule], controllers: [Orders, Carts] })
class Shop implements NestModule {
  @Inject(SubmitLock) private readonly lock!: SubmitLock;
  @Inject(HttpAdapterHost) private readonly host!: HttpAdapterHost;

  configure(consumer: MiddlewareConsumer): void {
    if (this.host.httpAdapter.getType() !== "express") return;
    const guard = submitGuard({
      lock: this.lock,
      userId: (req) => req.get("x-user-id"), // what a middleware before this one has verified
      idempotency: {},
    });
    consumer
      .apply(guard)
      .forRoutes(
        { path: "orders", method: RequestMethod.POST },
        { path: "orders/broken", method: RequestMethod.POST },
      );
  }
}

async function main(): Promise<void> {
  const logger = ["error"] as const;
  const app =
    PLATFORM === "fastify"
      ? await NestFactory.create(
          Shop,
          new (await import("@nestjs/platform-fastify")).FastifyAdapter(),
          { logger: [...logger] },
        )
      : await NestFactory.create(Shop, { logger: [...logger] });
  if (PLATFORM === "express") {
    app.use(session({ secret: "a secret", resave: true, saveUninitialized: true }));
  }
  app.enableShutdownHooks();
  await app.listen(Number(PORT), "127.0.0.1");
}

void main();
