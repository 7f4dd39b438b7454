import { createHash } from "node:crypto";
import {
  BadRequestException,
  type CallHandler,
  type ExecutionContext,
  Inject,
  Injectable,
  type NestInterceptor,
} from "@nestjs/common";
import { lastValueFrom, type Observable, of } from "rxjs";
import { SubmitLock } from "submit-lock";

/** The value of the controller is kept, and repeated to a late click. */
@Injectable()
export class Once implements NestInterceptor {
  @Inject(SubmitLock) private readonly lock!: SubmitLock;

  async intercept(context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    const { body, headers, path, user } = context.switchToHttp().getRequest();
    const key = headers["idempotency-key"];
    if (!key) throw new BadRequestException("Idempotency-Key is missing");
    const content = JSON.stringify(body ?? null);
    const fingerprint = createHash("sha256").update(content).digest("hex");
    const { value } = await this.lock.once(user, { id: `${path} ${key}`, fingerprint }, () =>
      lastValueFrom(next.handle(), { defaultValue: undefined }),
    );
    return of(value);
  }
}
