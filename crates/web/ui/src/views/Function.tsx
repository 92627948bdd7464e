export function FunctionView() { return <div />; }
