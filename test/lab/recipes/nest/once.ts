import {
  BadRequestException,
  type CallHandler,
  type ExecutionContext,
  Inject,
  Injectable,
  type NestInterceptor,
} from "@nestjs/common";
import { lastValueFrom, type Observable, of } from "rxjs";
import { fingerprintOf, parseIdempotencyKey, SubmitLock } from "submit-lock";

/** The value of the controller is kept, and repeated to a late click. */
@Injectable()
export class Once implements NestInterceptor {
  @Inject(SubmitLock) private readonly lock!: SubmitLock;

  async intercept(context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    const { body, headersDistinct, path, user } = context.switchToHttp().getRequest();
    const header = parseIdempotencyKey(headersDistinct["idempotency-key"]);
    if (header.kind !== "key") throw new BadRequestException("Idempotency-Key is missing");
    const submission = { id: `${path} ${header.key}`, fingerprint: fingerprintOf(body ?? null) };
    const { value } = await this.lock.once(user, submission, () =>
      lastValueFrom(next.handle(), { defaultValue: undefined }),
    );
    return of(value);
  }
}
