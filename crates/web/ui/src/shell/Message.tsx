import { Show } from "solid-js";
import { visible } from "../names";
import type { ErrorBody } from "../net/types";

/** An error with its remedy, in place of a view. */
export function Wrong(props: { error: ErrorBody }) {
  return (
    <div class="message wrong" role="alert">
      <h2>{visible(props.error.text)}</h2>
      <Show when={props.error.remedy}>{(remedy) => <p>{visible(remedy())}</p>}</Show>
    </div>
  );
}
